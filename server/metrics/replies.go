package metrics

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

const (
	countedKinds    = protocol.NumKinds
	countedStatuses = 16
)

// Replies counts replies by kind and status, and measures how long requests took. Each goroutine
// that replies has its own, so that counting costs uncontended additions.
type Replies struct {
	n    [countedKinds][countedStatuses]atomic.Uint64
	took [countedKinds]*distribution // of requests alone
}

// NewReplies makes one more, which counts until CloseReplies.
func (m *Metrics) NewReplies() *Replies {
	r := newReplies()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.replies = append(m.replies, r)
	return r
}

func newReplies() *Replies {
	r := new(Replies)
	for kind := range protocol.Kind(countedKinds) {
		if kind == 0 || kind.IsRequest() {
			r.took[kind] = newDistribution(RequestSeconds)
		}
	}
	return r
}

// CloseReplies ends one: what it has counted stays in the sum of all.
func (m *Metrics) CloseReplies(r *Replies) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.Index(m.replies, r)
	if i < 0 {
		return
	}
	m.replies = slices.Delete(m.replies, i, i+1)
	for kind := range r.n {
		for st := range r.n[kind] {
			m.closed.n[kind][st].Add(r.n[kind][st].Load())
		}
		if h := r.took[kind]; h != nil {
			s := h.snapshot()
			m.closed.took[kind].add(s.counts, s.sum)
		}
	}
}

// Count counts a reply to a request of this kind.
func (r *Replies) Count(kind protocol.Kind, st protocol.Status) {
	r.n[counted(kind)][st&(countedStatuses-1)].Add(1)
}

// Took measures a request: how long it took from the read of its frame to its reply.
func (r *Replies) Took(kind protocol.Kind, d time.Duration) {
	if h := r.took[counted(kind)]; h != nil {
		h.observeDuration(d)
	}
}

func counted(kind protocol.Kind) protocol.Kind {
	if int(kind) >= countedKinds {
		return 0
	}
	return kind
}

// Totals are the numbers of all replies so far, and of those with another status than OK.
func (m *Metrics) Totals() (answered, rejected uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range append(m.replies[:len(m.replies):len(m.replies)], m.closed) {
		for kind := range r.n {
			for st := range r.n[kind] {
				n := r.n[kind][st].Load()
				answered += n
				if protocol.Status(st) != protocol.StatusOK {
					rejected += n
				}
			}
		}
	}
	return answered, rejected
}

// Of is the number of replies of a kind and status.
func (r *Replies) Of(kind protocol.Kind, st protocol.Status) uint64 { return r.n[kind][st].Load() }
