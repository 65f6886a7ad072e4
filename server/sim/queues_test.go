package sim

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
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
	h.call(t, protocol.KindAlter, m, &m.Head)
}

// drawDemand is what an acquire asks for beyond units.
func (w *simulation) drawDemand(t *slot, actor uint32) *protocol.AcquireOptions {
	if semaphores[t.name].limit == protocol.Forever || !w.fault(Demand, actor, 0.6) {
		return nil
	}
	return &protocol.AcquireOptions{
		Priority: uint8(w.pick(Demand, actor, protocol.MaxPriority+2)), Key: keys[w.pick(Demand, actor, uint64(len(keys)))],
	}
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
