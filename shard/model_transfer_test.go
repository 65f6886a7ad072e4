package shard

import (
	"math/big"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// heir is the waiter that the owner r transfers to, and its slots.
func (m *model) heir(s *modelSemaphore, r *modelEntry, session uint64) (*modelEntry, []*modelSlot) {
	at := slices.IndexFunc(s.entries, func(w *modelEntry) bool { return w.session.id == session && !w.owner })
	if !r.owner || at < 0 {
		return nil, nil
	}
	to := s.entries[at]
	others := s.used() - r.count
	if m.overdue(to) || to.count > r.count || others > s.limit || to.count > s.limit-others {
		return nil, nil
	}
	if s.queue == nil || len(s.queue.slots) == 0 {
		return to, nil
	}
	var slots []*modelSlot
	for _, from := range []*modelEntry{r, nil} {
		for _, x := range s.queue.slots {
			if x.owner == from && !x.drained && s.admits(to.ask, x) && uint64(len(slots)) < to.count {
				slots = append(slots, x)
			}
		}
	}
	if uint64(len(slots)) < to.count {
		return nil, nil
	}
	return to, slots
}

func (m *model) transfer(s *modelSemaphore, r, to *modelEntry, slots []*modelSlot) {
	first := s.head() == to
	m.remove(s, r, true)
	if s.queue != nil && len(s.queue.ended) > 0 && s.queue.o.History > 0 {
		s.queue.ended[len(s.queue.ended)-1].Cause = protocol.HoldTransferred
	}
	m.countRule("transfer")
	if len(slots) > 0 {
		m.countRule("transfer of slots")
	}
	if !s.laned() && !first {
		m.countRule("transfer past somebody")
		if s.queue == nil {
			s.queue = &modelQueue{virtual: new(big.Int), starts: map[string]*big.Int{}}
		}
		s.queue.late = true
	}
	if s.laned() || s.queue != nil && s.queue.late {
		m.grantFrom(s, to, slots)
	} else {
		m.grant(s, to)
	}
	m.result(s, to, protocol.StatusOK, protocol.Acquired)
	m.process(s)
}
