package request

import (
	"context"
	"sync"
	"time"
)

const (
	// keyFetchPause is the least time between two requests to fetch the keys of a trust.
	keyFetchPause = time.Minute
	// keyFetchTimeout bounds the wait for one: a hello has to be answered.
	keyFetchTimeout = 3 * time.Second
)

// tokenChecks are the checks of signed tokens, beside the event loops. One of each host runs at a
// time: a host that shows many tokens waits for itself alone.
type tokenChecks struct {
	mu      sync.Mutex
	waiting map[string][]func() // by host; a host whose check runs is in it
	fetches map[string]keyFetch // by trust: the last ones
}

type keyFetch struct {
	begun time.Time
	done  chan struct{} // closed at its end
}

// run has a check run on a goroutine that start begins.
func (t *tokenChecks) run(start func(func()), host string, check func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if list, busy := t.waiting[host]; busy {
		t.waiting[host] = append(list, check)
		return
	}
	if t.waiting == nil {
		t.waiting = make(map[string][]func())
	}
	t.waiting[host] = nil
	start(func() {
		for ; check != nil; check = t.next(host) {
			check()
		}
	})
}

func (t *tokenChecks) next(host string) (check func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.waiting[host]
	if len(list) == 0 {
		delete(t.waiting, host)
		return nil
	}
	t.waiting[host] = list[1:]
	return list[0]
}

// fetchKeys has the keys of a trust be fetched because a token names one that is not known, and reports
// whether this instance may have others now. Calls within a minute share one fetch.
func (t *tokenChecks) fetchKeys(s *Server, trust string) bool {
	if trust == "" {
		return false
	}
	t.mu.Lock()
	if t.fetches == nil {
		t.fetches = make(map[string]keyFetch)
	}
	f, now := t.fetches[trust], time.Now()
	if f.done == nil || now.Sub(f.begun) >= keyFetchPause {
		f = keyFetch{now, make(chan struct{})}
		t.fetches[trust] = f
		s.cfg.Go(func() {
			defer close(f.done)
			ctx, cancel := context.WithTimeout(s.confirming, keyFetchTimeout)
			defer cancel()
			if s.cfg.Cluster.FetchKeys(ctx, trust) == nil && s.cfg.Cluster.Sync(ctx) == nil {
				s.SetAuth(s.cfg.Cluster.State())
			}
		})
	}
	t.mu.Unlock()
	<-f.done
	return true
}
