package shard

import (
	"bytes"
	"math/big"
	"slices"
	"strconv"

	"github.com/signalbox-dev/signalbox/protocol"
)

// The part of the model that is about options: lanes, policies, slots, history. It sorts all
// waiters whenever it needs an order. Virtual time is math/big.

// modelQueue is what a semaphore has beyond a plain one.
type modelQueue struct {
	o       protocol.SemaphoreOptions // without slots
	slots   []*modelSlot              // those that leave behind the others
	late    bool
	virtual *big.Int
	starts  map[string]*big.Int // of keys that wait
	last    *string
	ended   []protocol.HistoryHold // the oldest first
}

type modelSlot struct {
	name             string
	labels           []string
	drained, leaving bool
	token            uint64
	owner            *modelEntry
}

// modelAsk is what an acquire asks for.
type modelAsk struct {
	level         uint8
	key           string
	labels, names string // sorted, with commas
	flags         uint8
	hold          uint64
}

func askOf(x *protocol.Acquire) modelAsk {
	a := modelAsk{level: 5}
	if o := x.Options; o != nil {
		if o.Priority > 0 {
			a.level = o.Priority - 1
		}
		a.key = string(o.Key)
		a.labels, a.names, a.flags, a.hold = joined(o.Labels), joined(o.Names), o.Flags, o.Hold
	}
	return a
}

func joined(list []string) (text string) {
	for _, s := range slices.Sorted(slices.Values(list)) {
		text += "," + s
	}
	return text
}

func (s *modelSemaphore) laned() bool {
	return s.queue != nil && (s.queue.o.Policy != protocol.PolicyFIFO || len(s.queue.slots) > 0)
}

// classOf is what waiters of a lane have in common, beside the selector.
func (s *modelSemaphore) classOf(a modelAsk) string {
	switch s.queue.o.Policy {
	case protocol.PolicyPriority:
		return strconv.Itoa(9 - int(a.level))
	case protocol.PolicyFair:
		return a.key
	}
	return ""
}

func (s *modelSemaphore) sameLane(a, b *modelEntry) bool {
	return s.classOf(a.ask) == s.classOf(b.ask) && a.ask.labels == b.ask.labels && a.ask.names == b.ask.names
}

// tag is that of a waiter under fair, if it is the first of its lane.
func (s *modelSemaphore) tag(r *modelEntry) *big.Int {
	q := s.queue
	start := q.starts[r.ask.key]
	if start == nil {
		start = q.virtual
	}
	weight := uint64(1)
	for _, w := range q.o.Weights {
		if string(w.Key) == r.ask.key {
			weight = w.Weight
		}
	}
	cost := new(big.Int).SetUint64(min(r.count, 1<<20))
	cost.Lsh(cost, 20).Div(cost, new(big.Int).SetUint64(weight))
	if cost.Sign() == 0 {
		cost.SetInt64(1)
	}
	return cost.Add(cost, start)
}

// comesBefore is the order of the policy among first waiters.
func (s *modelSemaphore) comesBefore(a, b *modelEntry) bool {
	q := s.queue
	switch q.o.Policy {
	case protocol.PolicyPriority:
		if q.o.Aging == 0 && a.ask.level != b.ask.level {
			return a.ask.level > b.ask.level
		}
		x := int64(a.arrival) - int64(a.ask.level)*int64(q.o.Aging)
		y := int64(b.arrival) - int64(b.ask.level)*int64(q.o.Aging)
		if q.o.Aging != 0 && x != y {
			return x < y
		}
	case protocol.PolicyFair:
		if c := s.tag(a).Cmp(s.tag(b)); c != 0 {
			return c < 0
		}
		lastA, lastB := q.last != nil && *q.last == a.ask.key, q.last != nil && *q.last == b.ask.key
		if lastA != lastB {
			return lastB
		}
	}
	return a.order < b.order
}

// firsts are the first waiters of all lanes of a list of waiters, in the order of the policy.
func (s *modelSemaphore) firsts(waiters []*modelEntry) (out []*modelEntry) {
	for _, r := range waiters {
		first := true
		for _, o := range waiters {
			first = first && !(o != r && s.sameLane(o, r) && o.order < r.order)
		}
		if first {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b *modelEntry) int {
		switch {
		case s.comesBefore(a, b):
			return -1
		case s.comesBefore(b, a):
			return 1
		}
		return 0
	})
	return out
}

func (s *modelSemaphore) admits(a modelAsk, x *modelSlot) bool {
	if x.leaving {
		return false
	}
	for _, label := range splitList(a.labels) {
		if !slices.Contains(x.labels, label) {
			return false
		}
	}
	return a.names == "" || slices.Contains(splitList(a.names), x.name)
}

func splitList(text string) (list []string) {
	for _, s := range bytes.Split([]byte(text), []byte(",")) {
		if len(s) > 0 {
			list = append(list, string(s))
		}
	}
	return list
}

// served is the waiter that is granted next, or ended because it is gone, and its slots.
func (m *model) served(s *modelSemaphore, waiters []*modelEntry, gone func(*modelEntry) bool) (r *modelEntry, slots []*modelSlot) {
	claimed := map[*modelSlot]bool{}
	for _, r := range s.firsts(waiters) {
		if gone(r) {
			return r, nil
		}
		var free []*modelSlot
		for _, x := range s.queue.slots {
			if x.owner == nil && !x.drained && !claimed[x] && s.admits(r.ask, x) {
				free = append(free, x)
			}
		}
		switch {
		case len(s.queue.slots) == 0:
			if s.fits(r.count) {
				return r, nil
			}
			return nil, nil
		case s.fits(r.count) && uint64(len(free)) >= r.count:
			return r, free[:r.count]
		}
		left := false
		for _, x := range s.queue.slots {
			claimed[x] = claimed[x] || s.admits(r.ask, x)
			left = left || x.owner == nil && !x.drained && !x.leaving && !claimed[x]
		}
		if !left {
			return nil, nil
		}
	}
	return nil, nil
}

func (s *modelSemaphore) waiting() (list []*modelEntry) {
	for _, r := range s.entries {
		if !r.owner {
			list = append(list, r)
		}
	}
	return list
}

// examine is process where there are lanes.
func (m *model) examine(s *modelSemaphore) {
	for {
		r, slots := m.served(s, s.waiting(), m.overdue)
		switch {
		case r == nil:
			return
		case m.overdue(r):
			m.countRule("first of a lane is overdue")
			m.endWaiter(s, r)
		default:
			if s.waiting()[0] != r {
				m.countRule("granted past an older waiter")
			}
			m.grantFrom(s, r, slots)
			m.result(s, r, protocol.StatusOK, protocol.Acquired)
		}
	}
}

// serves reports whether the request r, as it would wait, is what is granted first.
func (m *model) serves(s *modelSemaphore, r *modelEntry, others []*modelEntry) ([]*modelSlot, bool) {
	got, slots := m.served(s, append(slices.Clone(others), r), func(*modelEntry) bool { return false })
	return slots, got == r
}

// joins and left keep the starts of keys: that of a key is the virtual time of its first waiter.
func (s *modelSemaphore) joins(key string) {
	if s.queue != nil && s.queue.o.Policy == protocol.PolicyFair && s.queue.starts[key] == nil {
		s.queue.starts[key] = new(big.Int).Set(s.queue.virtual)
	}
}

func (s *modelSemaphore) left() {
	q := s.queue
	if q == nil {
		return
	}
	for key := range q.starts {
		if !slices.ContainsFunc(s.waiting(), func(r *modelEntry) bool { return r.ask.key == key }) {
			delete(q.starts, key)
		}
	}
	if len(s.waiting()) == 0 && !s.laned() {
		q.late = false
	}
}

// grantFrom grants to an entry where tokens may be late: from the queue it gets a new order id.
func (m *model) grantFrom(s *modelSemaphore, r *modelEntry, slots []*modelSlot) {
	tag := new(big.Int)
	if s.queue.o.Policy == protocol.PolicyFair {
		tag = s.tag(r)
	}
	m.orders[m.bucketOf(s)]++
	r.order = m.orders[m.bucketOf(s)]
	m.granted(s, r, slots, tag)
	m.grant(s, r)
}

// granted notes what a grant changes in the queue.
func (m *model) granted(s *modelSemaphore, r *modelEntry, slots []*modelSlot, tag *big.Int) {
	q := s.queue
	r.owner, r.arrival, r.ask.labels, r.ask.names = true, 0, "", ""
	s.left()
	for _, x := range slots {
		x.owner, x.token = r, r.order
	}
	if q.o.Policy == protocol.PolicyFair {
		if q.virtual.Cmp(tag) < 0 {
			q.virtual.Set(tag)
		}
		if q.starts[r.ask.key] != nil {
			q.starts[r.ask.key] = tag
			m.countRule("fair: a key is granted and waits on")
		}
		key := r.ask.key
		q.last = &key
	}
	slices.SortStableFunc(s.entries, func(a, b *modelEntry) int {
		switch {
		case a.owner != b.owner && a.owner, a.owner == b.owner && a.order < b.order:
			return -1
		}
		return 1
	})
}

// slotsOf are the slots of an owner, in order.
func (s *modelSemaphore) slotsOf(r *modelEntry) (list []*modelSlot) {
	if s.queue != nil {
		for _, x := range s.queue.slots {
			if x.owner == r {
				list = append(list, x)
			}
		}
	}
	return list
}

func (s *modelSemaphore) slotNames(r *modelEntry) (names []string) {
	for _, x := range s.slotsOf(r) {
		names = append(names, x.name)
	}
	return names
}

// give frees slots; those that leave are gone.
func (s *modelSemaphore) give(list []*modelSlot) {
	for _, x := range list {
		x.owner = nil
		if x.leaving {
			s.queue.slots = without(s.queue.slots, x)
		}
	}
}

// selectorRefused says why the slots of a request cannot be.
func (m *model) selectorRefused(s *modelSemaphore, r *modelEntry, a modelAsk, count uint64) protocol.Status {
	switch {
	case a.labels == "" && a.names == "":
	case s.queue == nil || len(s.queue.slots) == 0:
		m.countRule("selector without slots")
		return protocol.StatusPreconditionFailed
	case r != nil && r.owner:
	default:
		n := uint64(0)
		for _, x := range s.queue.slots {
			if s.admits(a, x) {
				n++
			}
		}
		if n < count {
			m.countRule("selector with too few slots")
			return protocol.StatusBadRequest
		}
	}
	return protocol.StatusOK
}

// kept parts the slots of an owner that asks again.
func (m *model) kept(s *modelSemaphore, r *modelEntry, a modelAsk, count uint64) (given []*modelSlot, ok bool) {
	all := s.slotsOf(r)
	if len(all) == 0 {
		return nil, true
	}
	if a.names != "" {
		held := 0
		for _, x := range all {
			if slices.Contains(splitList(a.names), x.name) {
				held++
			} else {
				given = append(given, x)
			}
		}
		return given, held == len(splitList(a.names))
	}
	for _, x := range all {
		for _, label := range splitList(a.labels) {
			if !slices.Contains(x.labels, label) {
				return nil, false
			}
		}
	}
	return all[count:], true
}

// placeBytes is what an entry counts beyond a plain one.
func (s *modelSemaphore) placeBytes(r *modelEntry) int {
	slots := len(s.slotsOf(r))
	if r.ask == (modelAsk{level: 5}) && slots == 0 && r.want == (modelPreemption{}) && !(s.laned() && !r.owner) {
		return 0
	}
	return 128 + 4*slots + len(r.ask.key) + len(r.ask.labels) + len(r.ask.names)
}

func (s *modelSemaphore) optionBytes() int {
	if s.queue == nil {
		return 0
	}
	return modelOptionBytes(s.options(), s.limit)
}

func modelOptionBytes(o protocol.SemaphoreOptions, limit uint64) int {
	if o.Plain() {
		return 0
	}
	sum := 512 + 192*int(o.History)
	for _, w := range o.Weights {
		sum += len(w.Key)
	}
	if o.Numbered {
		sum += 64 * int(limit)
	}
	for _, x := range o.Slots {
		sum += 64 + len(x.Name)
		for _, label := range x.Labels {
			sum += len(label)
		}
	}
	return sum
}
