package shard

import (
	"bytes"
	"math/big"
	"slices"
	"strconv"

	"github.com/signalbox-dev/signalbox/protocol"
)

// The part of the model that is about options of semaphores: create, alter, slots, history.

// options are those of the semaphore, slots included.
func (s *modelSemaphore) options() (o protocol.SemaphoreOptions) {
	if s.queue == nil {
		return o
	}
	o = s.queue.o
	if !o.Numbered {
		for _, x := range s.queue.slots {
			if !x.leaving {
				o.Slots = append(o.Slots, protocol.Slot{Name: x.name, Labels: x.labels})
			}
		}
	}
	return o
}

func modelSlots(o protocol.SemaphoreOptions, limit uint64) []protocol.Slot {
	if !o.Numbered {
		return o.Slots
	}
	var list []protocol.Slot
	for i := range min(limit, 1025) { // more are refused
		list = append(list, protocol.Slot{Name: strconv.FormatUint(i, 10)})
	}
	return list
}

// setSlots gives the semaphore these slots.
func (s *modelSemaphore) setSlots(list []protocol.Slot) {
	var now []*modelSlot
	for _, c := range list {
		x := &modelSlot{name: c.Name, labels: c.Labels}
		for _, old := range s.queue.slots {
			if old.name == c.Name {
				x = old
				x.labels, x.leaving = c.Labels, false
			}
		}
		now = append(now, x)
	}
	for _, old := range s.queue.slots {
		if !slices.Contains(now, old) && old.owner != nil {
			old.leaving = true
			now = append(now, old)
		}
	}
	s.queue.slots = now
}

// ownQueue gives the semaphore options.
func (s *modelSemaphore) ownQueue() *modelQueue {
	if s.queue == nil {
		s.queue = &modelQueue{virtual: new(big.Int), starts: map[string]*big.Int{}}
	}
	return s.queue
}

func (s *modelSemaphore) setOptions(o *protocol.SemaphoreOptions) {
	if o == nil || o.Plain() {
		return
	}
	q := s.ownQueue()
	q.o = *o
	q.o.Slots = nil
	q.o.Weights = sortedWeights(o.Weights)
	s.setSlots(modelSlots(*o, s.limit))
	q.late = s.laned()
}

func sortedWeights(list []protocol.Weight) (out []protocol.Weight) {
	for _, w := range list {
		out = append(out, protocol.Weight{Key: bytes.Clone(w.Key), Weight: w.Weight})
	}
	slices.SortFunc(out, func(a, b protocol.Weight) int { return bytes.Compare(a.Key, b.Key) })
	return out
}

func (m *model) alter(o op, x *protocol.Alter) {
	if badHead(x.Head, x.Name) || protocol.Validate(x) != nil {
		m.reply(protocol.StatusBadRequest)
		return
	}
	s := m.request(o, x.Head, x.Name)
	if s == nil {
		return
	}
	sem := m.sem(o.node, x.Name)
	switch {
	case sem == nil:
		m.refuse(s, o, x.Seq, protocol.StatusNotFound)
		return
	case sem.ephemeral:
		m.refuse(s, o, x.Seq, protocol.StatusPreconditionFailed)
		return
	}
	was, limit := sem.options(), sem.limit
	next := was
	if x.Fields&protocol.AlterPolicy != 0 {
		next.Policy = x.Options.Policy
	}
	if x.Fields&protocol.AlterAging != 0 {
		next.Aging = x.Options.Aging
	}
	if x.Fields&protocol.AlterWeights != 0 {
		next.Weights = sortedWeights(x.Options.Weights)
	}
	if x.Fields&protocol.AlterHistory != 0 {
		next.History = x.Options.History
	}
	if x.Fields&protocol.AlterMaxHold != 0 {
		next.MaxHold = x.Options.MaxHold
	}
	if x.Fields&protocol.AlterExtend != 0 {
		next.Extend = x.Options.Extend
	}
	if x.Fields&protocol.AlterPreempt != 0 {
		next.Preempt = x.Options.Preempt
	}
	if x.Fields&protocol.AlterGrace != 0 {
		next.Grace = x.Options.Grace
	}
	if x.Fields&protocol.AlterMinHold != 0 {
		next.MinHold = x.Options.MinHold
	}
	if x.Fields&protocol.AlterSlots != 0 {
		next.Numbered, next.Slots = x.Options.Numbered, x.Options.Slots
		if len(next.Slots) > 0 {
			limit = uint64(len(next.Slots))
		}
	}
	will := next.Numbered || len(next.Slots) > 0
	slots := modelSlots(next, limit)
	known := func(names []string) bool {
		for _, name := range names {
			if !slices.ContainsFunc(slots, func(x protocol.Slot) bool { return x.Name == name }) {
				return false
			}
		}
		return true
	}
	switch {
	case next.Aging != 0 && next.Policy != protocol.PolicyPriority, len(next.Weights) > 0 && next.Policy != protocol.PolicyFair,
		next.Preempt == protocol.PreemptLower && next.Policy != protocol.PolicyPriority,
		next.Preempt == protocol.PreemptOff && next.Grace+next.MinHold > 0, next.Grace == 0 && next.MinHold > 0,
		next.Preempt != protocol.PreemptOff && limit > 4096,
		next.Policy == protocol.PolicyFair && limit > 1<<20, next.Numbered && limit > 1024,
		next.Extend && next.MaxHold == 0:
		m.countRule("alter to options that do not fit")
		m.refuse(s, o, x.Seq, protocol.StatusBadRequest)
		return
	case will != (sem.queue != nil && len(sem.queue.slots) > 0) && len(sem.entries) > 0:
		m.countRule("slots on or off while in use")
		m.refuse(s, o, x.Seq, protocol.StatusPreconditionFailed)
		return
	case next.Preempt != protocol.PreemptOff && sem.used() > 4096 &&
		(was.Preempt != next.Preempt || was.Grace != next.Grace || was.MinHold != next.MinHold):
		m.countRule("owners preempted while too many units are held")
		m.refuse(s, o, x.Seq, protocol.StatusPreconditionFailed)
		return
	case !known(x.Drain) || !known(x.Undrain):
		m.countRule("drain of an unknown slot")
		m.refuse(s, o, x.Seq, protocol.StatusNotFound)
		return
	case m.full(o.node, modelOptionBytes(next, limit)-sem.optionBytes()):
		m.refuse(s, o, x.Seq, protocol.StatusPreconditionFailed)
		return
	}
	m.answer(s, o, x.Seq, Event{})
	m.altered(sem, was, next, limit, x)
}

func (m *model) altered(sem *modelSemaphore, was, next protocol.SemaphoreOptions, limit uint64, x *protocol.Alter) {
	sameWeights := slices.EqualFunc(was.Weights, next.Weights,
		func(a, b protocol.Weight) bool { return bytes.Equal(a.Key, b.Key) && a.Weight == b.Weight })
	sameSlots := was.Numbered == next.Numbered && slices.EqualFunc(was.Slots, next.Slots,
		func(a, b protocol.Slot) bool { return a.Name == b.Name && slices.Equal(a.Labels, b.Labels) })
	queue := was.Policy != next.Policy || was.Aging != next.Aging || !sameWeights
	rule := was.Preempt != next.Preempt || was.Grace != next.Grace || was.MinHold != next.MinHold
	changed := queue || !sameSlots || was.History != next.History || was.MaxHold != next.MaxHold ||
		was.Extend != next.Extend || rule
	if !changed && len(x.Drain)+len(x.Undrain) == 0 {
		return
	}
	q, laned := sem.ownQueue(), sem.laned()
	q.o = next
	q.o.Slots = nil
	if !sameSlots {
		m.countRule("slots altered")
		sem.setSlots(modelSlots(next, limit))
	}
	if queue || !sameSlots {
		if len(sem.waiting()) > 0 {
			m.countRule("policy or slots altered while others wait")
		}
		q.virtual, q.starts, q.last = new(big.Int), map[string]*big.Int{}, nil
		q.late = q.late || sem.laned()
		for _, r := range sem.waiting() {
			switch {
			case !sem.laned():
				r.arrival = 0
			case !laned:
				r.arrival = m.now
			}
			sem.joins(r.ask.key)
		}
		sem.left()
	}
	m.alterPreempt(sem, was, next)
	q.ended = q.ended[max(0, len(q.ended)-int(q.o.History)):]
	for _, y := range q.slots {
		drain, free := slices.Contains(x.Drain, y.name), slices.Contains(x.Undrain, y.name)
		if drain && !y.drained || free && y.drained {
			m.countRule("slot drained or undrained")
			y.drained, changed = drain, true
		}
	}
	if !changed {
		return
	}
	if sem.limit != limit {
		sem.limit = limit
		m.change(sem, protocol.SemaphoreChange{Kind: protocol.ChangeLimit, Limit: limit})
	}
	m.change(sem, protocol.SemaphoreChange{Kind: protocol.ChangeOptions})
	m.process(sem)
}

// keepHold puts an owner that goes into the history.
func (m *model) keepHold(s *modelSemaphore, r *modelEntry) {
	if s.queue == nil || s.queue.o.History == 0 {
		return
	}
	cause := protocol.HoldReleased
	switch {
	case m.bounded != 0 && !r.session.ended:
		cause = m.bounded
	case m.forcing && !r.session.ended: // one that is only overdue lost it by force
		cause = protocol.HoldForced
	case !m.alive(r.session):
		cause = protocol.HoldSessionEnded
	}
	m.countRule("hold in the history")
	names := s.slotNames(r)
	s.queue.ended = append(s.queue.ended, protocol.HistoryHold{Token: r.order, Session: r.session.id,
		Description: r.session.desc, Count: r.count, Slots: names[:min(len(names), 8)], Since: r.since, Until: m.wall,
		Cause: cause, Ending: r.session.ending})
	s.queue.ended = s.queue.ended[max(0, len(s.queue.ended)-int(s.queue.o.History)):]
}
