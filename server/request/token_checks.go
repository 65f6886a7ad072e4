package request

import "sync"

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
