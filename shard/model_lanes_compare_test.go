package shard

import (
	"fmt"
	"math/big"
	"reflect"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// describedWaiters are the waiters as a description has them: lane by lane where there are lanes.
func (s *modelSemaphore) describedWaiters() (out []protocol.Waiter) {
	waiting := s.waiting()
	var ranks []*modelEntry
	if s.laned() {
		slices.SortStableFunc(waiting, func(a, b *modelEntry) int {
			return slices.Compare([]string{s.classOf(a.ask), selectorText(a.ask)}, []string{s.classOf(b.ask), selectorText(b.ask)})
		})
		ranks = s.ranks()
	}
	for _, r := range waiting {
		w := protocol.Waiter{OrderID: r.order, Session: r.session.id, Count: r.count, Data: r.data,
			Description: r.session.desc, Since: r.since, Timeout: r.timeout}
		if s.placeBytes(r) > 0 {
			w.Options = &protocol.WaiterOptions{Priority: r.ask.level + 1, Key: []byte(r.ask.key),
				Labels: splitList(r.ask.labels), Names: splitList(r.ask.names), Flags: r.ask.flags, Rank: uint64(slices.Index(ranks, r) + 1)}
		}
		out = append(out, w)
	}
	return out
}

// selectorText orders lanes of one class.
func selectorText(a modelAsk) string {
	switch {
	case a.names != "":
		return "@" + a.names[1:]
	case a.labels != "":
		return "+" + a.labels[1:]
	}
	return ""
}

// ranks serves the waiters of a copy one after the other.
func (s *modelSemaphore) ranks() (out []*modelEntry) {
	as := *s
	q := *s.queue
	as.queue = &q
	q.starts = map[string]*big.Int{}
	for key, start := range s.queue.starts {
		q.starts[key] = start
	}
	waiting := s.waiting()
	for len(waiting) > 0 && len(out) < 16 {
		r := as.firsts(waiting)[0]
		if q.o.Policy == protocol.PolicyFair {
			key := r.ask.key
			q.starts[key], q.last = as.tag(r), &key
		}
		out, waiting = append(out, r), without(waiting, r)
	}
	return out
}

// sameDetails compares options, slots and history, and checks that no slot has two owners.
func sameDetails(m *Machine, w *model, d *protocol.DescribeReply, s *modelSemaphore) error {
	o := s.options()
	if (d.Details == nil) != o.Plain() {
		return fmt.Errorf("details %v, want those of %+v", d.Details, o)
	}
	var out protocol.SemaphoreHistoryReply
	if err := m.Semaphores().History(&protocol.SemaphoreHistory{Node: s.node, Name: s.name}, &out); err != nil {
		return err
	}
	var ended []protocol.HistoryHold
	if s.queue != nil {
		ended = slices.Clone(s.queue.ended)
		slices.Reverse(ended)
	}
	for i := range out.Holds {
		if w.loose && i < len(ended) { // a shard may not know what the session is called
			ended[i].Description, out.Holds[i].Description = "", ""
			ended[i].Ending, out.Holds[i].Ending = nil, nil // nor how it ended
		}
	}
	if len(out.Holds)+len(ended) > 0 && !reflect.DeepEqual(out.Holds, ended) {
		return fmt.Errorf("history %+v, want %+v", out.Holds, ended)
	}
	if d.Details == nil {
		return nil
	}
	var slots []protocol.SlotInfo
	for _, x := range s.queue.slots {
		info := protocol.SlotInfo{Name: x.name, Labels: x.labels, Token: x.token, State: protocol.SlotFree}
		if x.owner != nil {
			info.Session, info.Since, info.State = x.owner.session.id, x.owner.since, protocol.SlotHeld
		}
		switch {
		case x.leaving:
			info.State = protocol.SlotLeaving
		case x.drained && x.owner != nil:
			info.State = protocol.SlotDraining
		case x.drained:
			info.State = protocol.SlotDrained
		}
		slots = append(slots, info)
	}
	if !reflect.DeepEqual(d.Details.Options, o) || len(slots)+len(d.Details.Slots) > 0 && !reflect.DeepEqual(d.Details.Slots, slots) {
		return fmt.Errorf("options %+v with slots %+v, want %+v and %+v", d.Details.Options, d.Details.Slots, o, slots)
	}
	return nil
}
