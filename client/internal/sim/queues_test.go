package sim

import (
	"bytes"
	"slices"

	"github.com/signalbox-dev/signalbox/client/internal/core"
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
	o.Preempt = protocol.PreemptMode(pick(uint64(protocol.PreemptOff), uint64(protocol.PreemptAny)))
	switch o.Policy {
	case protocol.PolicyPriority:
		o.Aging = pick(0, 1_000)
		o.Preempt = protocol.PreemptLower
	case protocol.PolicyFair:
		o.Weights = []protocol.Weight{{Key: keys[1], Weight: 3}}
	}
	if o.Preempt != protocol.PreemptOff {
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
		m.Fields |= protocol.AlterPreempt | protocol.AlterGrace | protocol.AlterMinHold
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

// heir is a session that a lease is transferred to: mostly one whose program asks for the
// semaphore, else any, alive or not.
func (w *simulation) heir(h *holder, t *slot, actor uint32) uint64 {
	var list []uint64
	for other := range w.living() {
		asks := func(x slot) bool { return x.name == t.name && x.acquire != nil && !x.acquire.done }
		if other.live() && other.s.ID != h.s.ID && slices.ContainsFunc(other.slots[:], asks) {
			list = append(list, other.s.ID)
		}
	}
	if len(list) == 0 || w.chance(LeaseTransfer, actor, 0.2) {
		list = slices.DeleteFunc(sorted(w.sessions), func(id uint64) bool { return id == h.s.ID })
	}
	if len(list) == 0 {
		return 0
	}
	return list[w.pick(LeaseTransfer, actor, uint64(len(list)))]
}

// preempted reports whether the program knows that a waiter preempts it.
func (x *call) preempted() bool {
	notified, _ := x.lease.Preempted()
	return notified
}

// extend asks for more time.
func (h *holder) extend(t *slot, actor uint32) {
	x := &core.Change{Hold: 1_000 + h.c.w.pick(Extend, actor, 3_000)}
	t.other = h.newCall(&x.Request)
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
	if x.Cause != protocol.HoldMaxHold && x.Cause != protocol.HoldPreempted {
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

// grant is what a client reads of an answer.
func (c *client) grant(g *protocol.Grant) *protocol.Grant {
	if c.plain {
		return nil
	}
	return g
}

// deliverPreempted sends the event that an owner is preempted, or not any more. Each replica
// whose instance has the session does so, and another one may be late.
func (r *replica) deliverPreempted(k *conn, x *shard.Event) {
	w := r.w
	if k.c.plain {
		return
	}
	m := &protocol.LeasePreempted{
		Session: x.Session, Name: bytes.Clone(x.Name), OrderID: x.OrderID, Preemption: x.Grant.Preemption, Over: x.Flag,
		Now: x.Grant.Now, Until: x.Grant.Until, By: x.Result,
	}
	if !w.fault(LosePreempted, r.n, 0.2) {
		k.event(protocol.KindLeasePreempted, m)
	}
	if w.fault(LatePreempted, r.n, 0.3) {
		w.after(w.pick(LatePreempted, r.n, 1_500), func() {
			if i := slices.IndexFunc(k.c.conns, func(other *conn) bool { return other != k && other.open }); i >= 0 {
				k.c.conns[i].event(protocol.KindLeasePreempted, m)
			}
		})
	}
}

// besidePreempted has other things happen while an owner learns that it is preempted, or not any
// more: the bucket moves, or the shard's leader changes. The new one may need long until it has
// confirmed its leadership: until then log time stands still.
func (w *simulation) besidePreempted(bucket uint32) {
	if !w.fault(BesidePreempted, bucket, 0.3) {
		return
	}
	w.after(w.pick(BesidePreempted, bucket, 150), func() {
		s := w.activeShard(bucket)
		if s == nil || w.faultsOver {
			return
		}
		r := s.replicas[w.pick(Elect, uint32(s.id), replicas)]
		switch {
		case w.move == nil && w.fault(MoveBucket, bucket, 0.3):
			w.beginMove(bucket)
		case r.up() && w.now >= r.isolatedUntil && w.fault(Elect, uint32(s.id), 0.5):
			s.unconfirmedUntil = w.now + w.pick(BarrierFails, uint32(s.id), 1_500)
			s.elect(r)
		case s.accepts() && w.fault(Transfer, uint32(s.id), 0.5):
			s.transfer(r)
		}
	})
}

// behindPreempted has a client pause, or lose its connections, soon after its program knows that it
// is preempted: before the engine has said so, or before the answer.
func (w *simulation) behindPreempted(c *client) {
	pauses, loses := w.fault(ClientPause, c.n, 0.1), w.fault(ConnLost, c.n, 0.2)
	w.after(w.pick(ConnLost, c.n, 150), func() {
		if w.faultsOver {
			return
		}
		if pauses {
			c.pause()
		}
		for _, k := range c.conns {
			if loses && !k.broken && !k.lost {
				w.breakDown(k)
			}
		}
	})
}

// ownerBound is how long the hold of an owner lasts, in ms.
type ownerBound struct {
	semaphore   string
	token, left uint64
}

// bounds are those of owners that nobody wants units from, in some buckets.
func (s *raftGroup) bounds(in func(bucket uint32) bool) (list []ownerBound) {
	for _, x := range semaphores {
		var out protocol.DescribeReply
		req := protocol.Describe{Node: node, Name: []byte(x.name), Flags: protocol.WithOwners}
		bucket := protocol.Bucket(node, req.Name, buckets)
		_, active := s.committed.Bucket(bucket)
		if !active || !in(bucket) || s.committed.Semaphores().Describe(&req, &out) != nil {
			continue
		}
		for _, o := range out.Owners {
			if o.Options != nil && o.Options.Left > 0 && !o.Options.Preempted {
				list = append(list, ownerBound{x.name, o.OrderID, o.Options.Left})
			}
		}
	}
	return list
}

// checkBounds checks that no hold lasts longer than before, where nobody can have asked for it.
func (s *raftGroup) checkBounds(before []ownerBound) {
	for _, is := range s.bounds(func(uint32) bool { return true }) {
		for _, was := range before {
			if is.semaphore == was.semaphore && is.token == was.token && is.left > was.left {
				s.w.fail("a hold of %s, token %d, lasts %d ms, and lasted %d", is.semaphore, is.token, is.left, was.left)
			}
		}
	}
}
