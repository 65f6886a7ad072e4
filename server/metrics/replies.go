package metrics

import (
	"slices"
	"sync/atomic"

	"github.com/signalbox-dev/signalbox/protocol"
)

const (
	countedKinds    = protocol.NumKinds
	countedStatuses = 16
)

// Replies counts replies by kind and status. Each goroutine that replies has its own, so that
// counting costs an uncontended addition.
type Replies struct {
	n [countedKinds][countedStatuses]atomic.Uint64
}

// NewReplies makes one more, which counts until CloseReplies.
func (m *Metrics) NewReplies() *Replies {
	r := new(Replies)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.replies = append(m.replies, r)
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
			m.closedReplies.n[kind][st].Add(r.n[kind][st].Load())
		}
	}
}

// Count counts a reply to a request of this kind.
func (r *Replies) Count(kind protocol.Kind, st protocol.Status) {
	if int(kind) >= countedKinds {
		kind = 0
	}
	r.n[kind][st&(countedStatuses-1)].Add(1)
}

// Of is the number of replies of a kind and status.
func (r *Replies) Of(kind protocol.Kind, st protocol.Status) uint64 { return r.n[kind][st].Load() }
