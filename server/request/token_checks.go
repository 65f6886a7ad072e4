package request

import (
	"context"
	"strings"
	"sync"
	"time"
)

// keyFetchTimeout bounds the wait for keys that are fetched: a hello has to be answered.
const keyFetchTimeout = 3 * time.Second

// tokenChecks are the checks of signed tokens, beside the event loops. One of each host runs at a
// time: a host that shows many tokens waits for itself alone.
type tokenChecks struct {
	mu       sync.Mutex
	waiting  map[string][]func()      // by host; a host whose check runs is in it
	fetching map[string]chan struct{} // by trusts whose keys are being fetched; closed at the end
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

// fetch runs f, or waits for the end of one for the same trusts that is under way.
func (t *tokenChecks) fetch(trusts []string, f func()) {
	of := strings.Join(trusts, "\n")
	t.mu.Lock()
	done, busy := t.fetching[of]
	if !busy {
		if t.fetching == nil {
			t.fetching = make(map[string]chan struct{})
		}
		done = make(chan struct{})
		t.fetching[of] = done
	}
	t.mu.Unlock()
	if busy {
		<-done
		return
	}
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.fetching, of)
		close(done)
	}()
	f()
}

// fetchKeys has the keys of trusts be fetched because a token names one that is not known. The
// instance that fetches does so once a minute at most.
func fetchKeys(s *Server, trusts []string) {
	s.tokenChecks.fetch(trusts, func() {
		ctx, cancel := context.WithTimeout(s.confirming, keyFetchTimeout)
		defer cancel()
		for _, name := range trusts {
			_ = s.cfg.Cluster.FetchKeys(ctx, name) // it is in the instance's log, and the token is checked again
		}
		if s.cfg.Cluster.Sync(ctx) == nil {
			s.SetAuth(s.cfg.Cluster.State())
		}
	})
}
