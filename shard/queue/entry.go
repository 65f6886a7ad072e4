package queue

import "github.com/signalbox-dev/signalbox/protocol"

// Ask is a waiter's record beyond a plain one. Where there are lanes every waiter has one.
type Ask struct {
	Demand
	Waiter
	Arrival uint64 // when it began to wait; of a waiter in a lane, else 0
	place   uint64 // in the queue
	lane    *lane  // nil where there are no lanes
	tag     uint64 // of a waiter that left its lane for a grant, see fair
}

// Waiter is the plain part of a waiter, as lanes need it.
type Waiter struct {
	Count   uint64
	Session uint64
	Entry   any // the semaphore's own, for its answers
}

// Grant is an owner's record beyond a plain one.
type Grant struct {
	Demand           // without selector and hold
	Slots   []uint32 // indexes, ascending
	Expires uint64   // at its longest hold; 0: never
	preemption
}

func (g *Grant) isPlain() bool {
	return g.Demand == plainDemand && len(g.Slots) == 0 && g.Expires == 0 && g.preemption == preemption{}
}

// entryBytes is the bytes that an Ask or a Grant counts, without texts and 4 bytes for each slot.
const entryBytes = 128

// Bytes returns the bytes that a demand counts against the quota of a node, with slots of an owner,
// or in a lane. A plain one counts nothing elsewhere.
func (d *Demand) Bytes(slots int, inLane bool) uint64 {
	if !inLane && slots == 0 && *d == plainDemand {
		return 0
	}
	return entryBytes + 4*uint64(slots) + uint64(len(d.Key)+len(d.Selector))
}

func (a *Ask) bytes() uint64 {
	if a == nil {
		return 0
	}
	return a.Bytes(0, true)
}

func (g *Grant) bytes() uint64 {
	if g == nil {
		return 0
	}
	return g.Bytes(len(g.Slots), true)
}

// Usage is the use of a node's quotas by the entries of a queue.
type Usage struct {
	Bytes     uint64
	Preempted uint64 // owners
	Silent    uint64 // owners that did not say in time that they know their preemption
}

// Bound returns when the hold of an owner ends, 0 for never, and why. The owner may be plain.
func (g *Grant) Bound() (at uint64, cause protocol.HoldEnd) {
	if g == nil {
		return 0, 0
	}
	if g.yieldBy != 0 && (g.Expires == 0 || g.yieldBy < g.Expires) {
		return g.yieldBy, protocol.HoldPreempted
	}
	return g.Expires, protocol.HoldMaxHold
}

// Ends reports whether the lease ends at its bound: its holder knows it.
func (g *Grant) Ends() bool {
	at, cause := g.Bound()
	return at != 0 && (cause != protocol.HoldPreempted || g.known)
}

// Left returns how long the hold lasts from now on, in ms; 0: it has no bound. Nothing ends the
// hold of a silent owner but its longest hold.
func (g *Grant) Left(now uint64) uint64 {
	at, _ := g.Bound()
	if g != nil && g.silent {
		at = g.Expires
	}
	if at == 0 {
		return 0
	}
	return max(1, at-min(at, now))
}

// Reply returns a waiter's part of the reply to an acquire, or nil.
func (a *Ask) Reply(now uint64) *protocol.Grant {
	if a == nil || !a.KnowsBounds() {
		return nil
	}
	return &protocol.Grant{Now: now}
}

// Options returns a waiter as clients see it, nil for a plain one.
func (a *Ask) Options() *protocol.WaiterOptions {
	if a == nil {
		return nil
	}
	o := &protocol.WaiterOptions{Priority: a.Level + 1, Key: []byte(a.Key), Flags: a.Flags}
	o.Labels, o.Names = selected(a.Selector)
	return o
}
