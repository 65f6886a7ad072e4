package sim

import (
	"slices"

	"github.com/signalbox-dev/signalbox/client/core"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// keys are those of acquires.
var keys = [][]byte{nil, []byte("a"), []byte("b")}

// drawOptions are those of a semaphore with this limit.
func (h *holder) drawOptions(limit uint64) *protocol.SemaphoreOptions {
	w := h.c.w
	pick := func(list ...uint64) uint64 { return list[w.pick(QueueOptions, h.n, uint64(len(list)))] }
	o := &protocol.SemaphoreOptions{History: pick(0, 2), Policy: protocol.QueuePolicy(pick(0, 1, 1, 2))}
	o.Wanted = protocol.WantedMode(pick(uint64(protocol.WantedOff), uint64(protocol.WantedAny)))
	switch o.Policy {
	case protocol.PolicyPriority:
		o.Aging = pick(0, 1_000)
		o.Wanted = protocol.WantedHigher
	case protocol.PolicyFair:
		o.Weights = []protocol.Weight{{Key: keys[1], Weight: 3}}
	}
	if o.Wanted != protocol.WantedOff {
		o.Grace = pick(0, 1_000, 2_000)
	}
	if o.Grace > 0 {
		o.MinHold = pick(0, 500)
	}
	o.Numbered = limit > 1 && pick(0, 1) == 1
	if o.MaxHold = pick(0, 0, 1_500, 4_000); o.MaxHold > 0 {
		o.Extend = pick(0, 1) == 1
	}
	return o
}

// alter changes the options of a semaphore, but not whether its units are slots.
func (h *holder) alter() {
	w := h.c.w
	t := &h.slots[w.pick(Alter, h.n, uint64(len(h.slots)))]
	limit := semaphores[t.name].limit
	if t.other != nil || limit == protocol.Forever {
		return
	}
	m := &protocol.Alter{Name: []byte(semaphores[t.name].name), Options: *h.drawOptions(limit)}
	m.Options.Numbered = false
	m.Fields = protocol.AlterPolicy | protocol.AlterAging | protocol.AlterWeights
	if w.chance(Alter, h.n, 0.7) {
		m.Fields |= protocol.AlterWanted | protocol.AlterGrace | protocol.AlterMinHold
	}
	if w.chance(Alter, h.n, 0.5) {
		m.Fields |= protocol.AlterMaxHold | protocol.AlterExtend
	}
	h.call(t, protocol.KindAlter, m, &m.Head)
}

// drawDemand is what an acquire asks for beyond units.
func (w *simulation) drawDemand(t *slot, actor uint32) *protocol.AcquireOptions {
	if !w.fault(Demand, actor, 0.6) {
		return nil
	}
	o := &protocol.AcquireOptions{}
	if o.Hold = []uint64{0, 1_000, 3_000}[w.pick(Demand, actor, 3)]; o.Hold > 0 {
		o.Flags = protocol.KnowsBounds
	}
	if semaphores[t.name].limit != protocol.Forever {
		o.Priority = uint8(w.pick(Demand, actor, protocol.MaxPriority+2))
		o.Key = keys[w.pick(Demand, actor, uint64(len(keys)))]
	}
	return o
}

// heir is a session that a lease is handed over to: mostly one whose program asks for the semaphore,
// else any, alive or not.
func (w *simulation) heir(h *holder, t *slot, actor uint32) uint64 {
	var list []uint64
	for other := range w.living() {
		asks := func(x slot) bool { return x.name == t.name && x.acquire != nil && !x.acquire.done }
		if other.live() && other.s.ID != h.s.ID && slices.ContainsFunc(other.slots[:], asks) {
			list = append(list, other.s.ID)
		}
	}
	if len(list) == 0 || w.chance(HandOver, actor, 0.2) {
		list = slices.DeleteFunc(sorted(w.sessions), func(id uint64) bool { return id == h.s.ID })
	}
	if len(list) == 0 {
		return 0
	}
	return list[w.pick(HandOver, actor, uint64(len(list)))]
}

// wanted reports whether the program knows that a waiter wants its units.
func (x *call) wanted() bool {
	notified, _ := x.lease.Wanted()
	return notified
}

// extend asks for more time.
func (h *holder) extend(t *slot, actor uint32) {
	x := &core.Change{Hold: 1_000 + h.c.w.pick(Extend, actor, 3_000)}
	t.other = &call{}
	t.other.of(&x.Request)
	h.c.e.Change(h.c.clock(), &t.acquire.lease, x)
}

// withinBound reports whether a program may rely on a lease as far as its bound goes, by its own
// clock.
func (c *client) withinBound(l *core.Lease) bool {
	in, _, bounded := l.EndsAt(c.e, c.clock())
	return !bounded || in > 0
}

// checkBound checks that nobody relies on a lease that ends at its bound.
func (w *simulation) checkBound(x *shard.Event) {
	if x.Cause != protocol.HoldMaxHold && x.Cause != protocol.HoldWanted {
		return
	}
	w.counts["ended at its bound"]++
	i := slices.IndexFunc(semaphores[:], func(s semaphore) bool { return s.name == string(x.Name) })
	for _, b := range w.beliefs()[i] {
		if b.h.s.ID == x.Session && b.x.lease.Token == x.OrderID {
			w.fail("the lease %d of session %s on %s ends at its bound, and its program relies on it", x.OrderID, sessionName(x.Session), x.Name)
		}
	}
}

// slots are those that a program relies on. One that gives units back keeps the first ones.
func (x *call) slots() []string { return x.lease.Slots[:min(x.count, uint64(len(x.lease.Slots)))] }

// checkSlots checks that two programs rely on different slots.
func (w *simulation) checkSlots(name string, a, b belief) {
	for _, slot := range a.x.slots() {
		w.counts["slots"]++
		if slices.Contains(b.x.slots(), slot) {
			w.fail("sessions %s and %s rely on slot %s of %s", sessionName(a.h.s.ID), sessionName(b.h.s.ID), slot, name)
		}
	}
}
