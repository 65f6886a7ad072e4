package shard

import (
	"bytes"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// maxAlteredWaiters bounds the waiters that an alter moves to other lanes in one Apply.
const maxAlteredWaiters = 10_000

// applyAlter changes options of a persistent semaphore, and which of its slots are drained. Owners
// stay as they are; waiters go to the lanes of the new options, with their places and arrivals.
func applyAlter(m *Machine, c *rawCommand) {
	x := &m.batch.alter
	var r request
	if !m.decode(x, c.body) || !m.valid(x) || !r.enter(m, c, &x.Head, x.Name) {
		return
	}
	s := r.semaphore
	switch {
	case s == nil:
		r.refuse(m, outcomeNoSemaphore)
		return
	case s.ephemeral:
		r.refuse(m, outcomeIsEphemeral)
		return
	}
	a := newAlteration(s, x)
	if out := a.refusal(m, x); out != outcomeOK {
		r.refuse(m, out)
		return
	}
	r.finish(m, answer{})
	a.apply(m, x)
}

// alteration is an alter that is looked at: the options that result, and what changes with them.
type alteration struct {
	s       *semaphore
	options protocol.SemaphoreOptions
	limit   uint64
	slots   bool // the list of slots changes
	queue   bool // so do policy, aging or weights
	history bool
	holds   bool // longest hold, and whether it may be extended
	wanted  bool // whose units waiters may want, and how soon
}

func newAlteration(s *semaphore, x *protocol.Alter) *alteration {
	a := &alteration{s: s, limit: s.limit}
	var was protocol.SemaphoreOptions
	if q := s.queue(); q != nil {
		was = q.options()
	}
	o := was
	if x.Fields&protocol.AlterPolicy != 0 {
		o.Policy = x.Options.Policy
	}
	if x.Fields&protocol.AlterAging != 0 {
		o.Aging = x.Options.Aging
	}
	if x.Fields&protocol.AlterWeights != 0 {
		o.Weights = slices.Clone(x.Options.Weights)
		sortWeights(o.Weights)
	}
	if x.Fields&protocol.AlterHistory != 0 {
		o.History = x.Options.History
	}
	if x.Fields&protocol.AlterMaxHold != 0 {
		o.MaxHold = x.Options.MaxHold
	}
	if x.Fields&protocol.AlterExtend != 0 {
		o.Extend = x.Options.Extend
	}
	if x.Fields&protocol.AlterWanted != 0 {
		o.Wanted = x.Options.Wanted
	}
	if x.Fields&protocol.AlterGrace != 0 {
		o.Grace = x.Options.Grace
	}
	if x.Fields&protocol.AlterMinHold != 0 {
		o.MinHold = x.Options.MinHold
	}
	if x.Fields&protocol.AlterSlots != 0 {
		o.Numbered, o.Slots = x.Options.Numbered, x.Options.Slots
		if len(o.Slots) > 0 {
			a.limit = uint64(len(o.Slots))
		}
	}
	a.options = o
	a.queue = o.Policy != was.Policy || o.Aging != was.Aging || !slices.EqualFunc(o.Weights, was.Weights, sameWeight)
	a.slots = o.Numbered != was.Numbered || !slices.EqualFunc(o.Slots, was.Slots, sameSlot)
	a.history = o.History != was.History
	a.holds = o.MaxHold != was.MaxHold || o.Extend != was.Extend
	a.wanted = ruleOf(&o) != ruleOf(&was)
	return a
}

func sameWeight(a, b protocol.Weight) bool { return bytes.Equal(a.Key, b.Key) && a.Weight == b.Weight }

func sameSlot(a, b protocol.Slot) bool { return a.Name == b.Name && slices.Equal(a.Labels, b.Labels) }

// refusal is why the alter cannot be; nothing has changed.
func (a *alteration) refusal(m *Machine, x *protocol.Alter) outcome {
	s, o := a.s, &a.options
	on, will := s.hasSlots(), o.Numbered || len(o.Slots) > 0
	switch {
	case o.Fit(a.limit) != "":
		return outcomeOptions
	case on != will && s.owners.n+s.waiters.n > 0:
		return outcomeSlotsInUse
	case a.wanted && o.Wanted != protocol.WantedOff && s.used > protocol.MaxWantedLimit:
		return outcomeManyUnits
	case (a.queue || a.slots) && s.waiters.n > maxAlteredWaiters:
		return outcomeLongQueue
	case a.queue && !a.lanesFit():
		return outcomeLanesLimit
	case !a.knowsSlots(x.Drain) || !a.knowsSlots(x.Undrain):
		return outcomeNoSlot
	case !m.roomForBytes(s.node, growth(optionBytes(o, a.limit), s.queue().quotaBytes(s.limit))):
		return outcomeBytesQuota
	}
	return outcomeOK
}

// knowsSlots reports whether the slots will be there, or leave.
func (a *alteration) knowsSlots(names []string) bool {
	if len(names) == 0 {
		return true
	}
	list := slotConfigs(&a.options, a.limit)
	for _, name := range names {
		if !slices.ContainsFunc(list, func(x protocol.Slot) bool { return x.Name == name }) {
			return false
		}
	}
	return true
}

// lanesFit reports whether the waiters have no more lanes than are allowed.
func (a *alteration) lanesFit() bool {
	s, as := a.s, laneSet{policy: a.options.Policy}
	if s.waiters.n <= maxLanes {
		return true
	}
	type key struct{ class, selector string }
	seen := make(map[key]bool)
	for e := s.waiters.first; e != nil && len(seen) <= maxLanes; e = next(e, byOrder) {
		d := e.demand()
		seen[key{as.class(d), d.selector}] = true
	}
	return len(seen) <= maxLanes
}

func (a *alteration) apply(m *Machine, x *protocol.Alter) {
	s, o := a.s, &a.options
	changes := a.queue || a.slots || a.history || a.holds || a.wanted
	if !changes && len(x.Drain)+len(x.Undrain) == 0 {
		return
	}
	m.touch(s)
	q := s.ownQueue()
	s.node.bytes += optionBytes(o, a.limit) - q.quotaBytes(s.limit) // modulo 2^64
	if a.queue {
		q.relane(m, s, func() { q.policy, q.aging, q.weights = o.Policy, o.Aging, cloneWeights(o.Weights) })
	}
	if a.slots {
		q.relane(m, s, func() {
			q.slots.numbered = o.Numbered
			q.setSlots(m, slotConfigs(o, a.limit))
		})
	}
	q.history.resize(o.History)
	q.maxHold, q.extend = o.MaxHold, o.Extend
	if a.wanted {
		setWanted(m, s, ruleOf(o))
	}
	drained, free := q.slots.mark(x.Drain, true), q.slots.mark(x.Undrain, false)
	if !changes && !drained && !free {
		return
	}
	s.revision = m.applied
	if s.limit != a.limit {
		s.limit = a.limit
		s.updateStuck()
		m.emitChange(s, protocol.SemaphoreChange{Kind: protocol.ChangeLimit, Limit: s.limit})
	}
	m.emitChange(s, protocol.SemaphoreChange{Kind: protocol.ChangeOptions})
	s.promote(m)
	m.batch.checkHandOn(s)
}

// relane changes what decides about lanes, and puts the waiters into those that follow.
func (q *queue) relane(m *Machine, s *semaphore, change func()) {
	laned := q.laned()
	for e := s.waiters.first; e != nil; e = next(e, byOrder) {
		m.touch(e)
		if laned {
			q.leave(e)
		}
	}
	change()
	q.fair.reset()
	if q.late = q.late || q.laned(); s.waiters.n == 0 {
		q.late = q.laned()
	}
	now := m.bucketTime(s.bucket)
	for e := s.waiters.first; e != nil; e = next(e, byOrder) {
		p := place{demand: e.demand()}
		if q.laned() {
			if p.arrival = now; laned {
				p.arrival = q.places[e].arrival
			}
		}
		e.setPlace(&p)
		if q.laned() {
			q.join(e)
		}
	}
}

// mayResize says why a semaphore with options cannot have another limit.
func (q *queue) mayResize(m *Machine, s *semaphore, limit uint64) outcome {
	switch {
	case len(q.slots.list) > 0 && !q.slots.numbered && limit != s.limit:
		return outcomeSlotsNamed
	case q.slots.numbered && limit > protocol.MaxSlots, q.policy == protocol.PolicyFair && limit > protocol.MaxFairLimit,
		q.wanted.mode != protocol.WantedOff && limit > protocol.MaxWantedLimit:
		return outcomeLimitTooHigh
	case q.slots.numbered && limit > s.limit && !m.roomForBytes(s.node, 64*(limit-s.limit)):
		return outcomeBytesQuota
	}
	return outcomeOK
}

// resizeSlots gives a semaphore with numbered slots another number of them.
func (q *queue) resizeSlots(m *Machine, s *semaphore, limit uint64) {
	if q.slots.numbered {
		s.node.bytes += 64 * (limit - s.limit) // modulo 2^64
		q.setSlots(m, slotConfigs(&protocol.SemaphoreOptions{Numbered: true}, limit))
	}
}

// setSlots replaces the list of slots. Those with a name of before are the same slots. One that is
// left out goes at once if it is free, else when it is given back; named again meanwhile, it stays.
func (q *queue) setSlots(m *Machine, configs []protocol.Slot) {
	t := &q.slots
	was := t.list
	t.list = make([]namedSlot, 0, len(configs))
	now := make([]uint32, len(was)) // indexes of those that stay or leave
	byName := make(map[string]int, len(was))
	for i := range was {
		byName[was[i].name] = i
	}
	stays := make([]bool, len(was))
	for _, c := range configs {
		x := namedSlot{name: c.Name, labels: slices.Clone(c.Labels)}
		if i, ok := byName[c.Name]; ok {
			x.drained, x.token, x.owner = was[i].drained, was[i].token, was[i].owner
			now[i], stays[i] = uint32(len(t.list)), true
		}
		t.list = append(t.list, x)
	}
	for i := range was {
		if !stays[i] && was[i].owner != nil {
			was[i].leaving = true
			now[i] = uint32(len(t.list))
			t.list = append(t.list, was[i])
		}
	}
	seen := make(map[*entry]bool)
	for i := range t.list {
		e := t.list[i].owner
		if e == nil || seen[e] {
			continue
		}
		seen[e] = true
		m.touch(e)
		own := q.places[e].slots
		for k, at := range own {
			own[k] = now[at]
		}
		slices.Sort(own)
	}
	for _, l := range q.lanes {
		l.admits = t.admitted(l.selector)
	}
}
