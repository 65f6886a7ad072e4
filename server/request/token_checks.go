package request

import (
	"context"
	"sync"
	"time"
)

// keyFetchTimeout bounds the wait for keys that are fetched: a hello has to be answered.
const keyFetchTimeout = 3 * time.Second

// tokenChecks are the checks of signed tokens, beside the event loops. One of each host runs at a
// time: a host that shows many tokens waits for itself alone.
type tokenChecks struct {
	mu      sync.Mutex
	waiting map[string][]func() // by host; a host whose check runs is in it
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

// fetchKeys has the keys of a trust be fetched because a token names one that is not known, and
// reports whether this instance may have others now. The instance that fetches does so once a
// minute at most.
func (t *tokenChecks) fetchKeys(s *Server, trust string) bool {
	if trust == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(s.confirming, keyFetchTimeout)
	defer cancel()
	if s.cfg.Cluster.FetchKeys(ctx, trust) == nil && s.cfg.Cluster.Sync(ctx) == nil {
		s.SetAuth(s.cfg.Cluster.State())
	}
	return true
}
