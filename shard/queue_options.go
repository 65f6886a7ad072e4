package shard

import (
	"github.com/signalbox-dev/signalbox/protocol"
)

// queue is what a semaphore has beyond a plain one: options, lanes and slots, what its entries
// asked for, and the holds that ended.
//
// Invariant: there are lanes if and only if the policy is not fifo or there are slots; then every
// waiter is in one. Tokens are late while there are lanes, and after that until the queue is empty.
type queue struct {
	laneSet
	history holdHistory
	late    bool   // tokens are drawn at the grant; see DESIGN.md
	maxHold uint64 // ms; 0: holds have no bound by themselves
	extend  bool   // owners may ask for more time
	wanted  wantedRule
	wants   uint64 // owners that are wanted
}

// queue is nil for most semaphores.
func (s *semaphore) queue() *queue {
	if s.rare != nil {
		return s.rare.queue
	}
	return nil
}

// ownQueue makes the semaphore's queue, if it has none.
func (s *semaphore) ownQueue() *queue {
	r := s.ownRare()
	if r.queue == nil {
		r.queue = &queue{laneSet: laneSet{places: make(map[*entry]*place)}}
		r.queue.fair.reset()
	}
	return r.queue
}

// hasLanes reports whether waiters stand in lanes.
func (s *semaphore) hasLanes() bool {
	q := s.queue()
	return q != nil && q.laned()
}

// hasSlots reports whether units have names.
func (s *semaphore) hasSlots() bool {
	q := s.queue()
	return q != nil && len(q.slots.list) > 0
}

// lateTokens reports whether an entry that is granted from the queue draws a token.
func (s *semaphore) lateTokens() bool {
	q := s.queue()
	return q != nil && q.late
}

// isPlain reports whether the semaphore's own record is that of a plain one.
func (q *queue) isPlain() bool { return !q.late && !q.hasOptions() }

// hasOptions reports whether only a persistent semaphore can have the queue. The mark of late tokens
// alone may be an ephemeral one's.
func (q *queue) hasOptions() bool {
	o := q.options()
	return len(q.history.ended) > 0 || !o.Plain()
}

// options are as clients see them.
func (q *queue) options() protocol.SemaphoreOptions {
	o := protocol.SemaphoreOptions{Policy: q.policy, Aging: q.aging, Weights: q.weights, History: q.history.rows,
		Numbered: q.slots.numbered, MaxHold: q.maxHold, Extend: q.extend,
		Wanted: q.wanted.mode, Grace: q.wanted.grace, MinHold: q.wanted.minHold}
	if !q.slots.numbered {
		o.Slots = q.slots.configs()
	}
	return o
}

// optionBytes is what options count against a node's quota.
func optionBytes(o *protocol.SemaphoreOptions, limit uint64) uint64 {
	if o == nil || o.Plain() {
		return 0
	}
	sum := 512 + 160*o.History
	for _, w := range o.Weights {
		sum += uint64(len(w.Key))
	}
	for _, x := range o.Slots {
		sum += 64 + uint64(len(x.Name))
		for _, label := range x.Labels {
			sum += uint64(len(label))
		}
	}
	if o.Numbered {
		sum += 64 * limit
	}
	return sum
}

// quotaBytes is what the options of a semaphore count; nil is nothing.
func (q *queue) quotaBytes(limit uint64) uint64 {
	if q == nil {
		return 0
	}
	o := q.options()
	return optionBytes(&o, limit)
}

// setOptions sets the options of a semaphore without owners and waiters. It does not count their
// bytes.
func (s *semaphore) setOptions(o *protocol.SemaphoreOptions) {
	if o.Plain() {
		return
	}
	q := s.ownQueue()
	q.policy, q.aging, q.weights, q.history.rows = o.Policy, o.Aging, cloneWeights(o.Weights), o.History
	q.maxHold, q.extend = o.MaxHold, o.Extend
	q.wanted = ruleOf(o)
	q.slots.set(o, s.limit)
	q.late = q.laned()
}

// details are what a description has of a semaphore with options; nil for a plain one.
func (s *semaphore) details(slots bool) *protocol.SemaphoreDetails {
	q := s.queue()
	if q == nil {
		return nil
	}
	o := q.options()
	if o.Plain() {
		return nil
	}
	d := &protocol.SemaphoreDetails{Options: o}
	if slots {
		d.Slots = q.slots.infos()
	}
	return d
}

// cloneWeights copies weights of a request, in order of key.
func cloneWeights(list []protocol.Weight) []protocol.Weight {
	var own []protocol.Weight
	for _, w := range list {
		own = append(own, protocol.Weight{Key: cloneOrNil(w.Key), Weight: w.Weight})
	}
	sortWeights(own)
	return own
}
