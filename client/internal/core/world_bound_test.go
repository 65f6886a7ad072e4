package core

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// modelBound is what an entry has of bounds, in milliseconds of its bucket's time.
type modelBound struct {
	knows bool   // it ends by itself at a bound
	hold  uint64 // that was asked for
	until uint64 // 0: no bound

	want      uint64 // the preemption; 0: none
	wantUntil uint64
	said      bool // the holder knows this bound
}

// Of the names e and f.
const (
	worldHold  = 1500 // ms
	worldYield = 700  // ms
)

// passBuckets has the time of buckets go on, if it does, by a clock that is a little fast. Holds
// end at their bounds.
func (w *world) passBuckets(past time.Duration) {
	if w.chance(200) {
		w.stalled = w.now + time.Duration(w.rng.IntN(1500))*time.Millisecond
	}
	if w.now >= w.stalled || w.quiet {
		w.bucket += past + past/250
	}
	for _, name := range worldNames {
		n := w.names[name]
		if n == nil || len(n.queue) == 0 {
			continue
		}
		x, now := &n.queue[0], w.bucketNow()
		switch {
		case x.until != 0 && now > x.until:
			w.endAtBound(name, *x, protocol.HoldMaxHold, "ended at a bound")
		case x.wantUntil != 0 && now > x.wantUntil && x.said:
			w.endAtBound(name, *x, protocol.HoldPreempted, "yielded at a bound")
		case x.wantUntil != 0 && now > x.wantUntil:
			w.counts["silent"]++
			x.wantUntil = now + worldYield
			w.notifyPreempted(name, x, false)
		}
	}
}

func (w *world) bucketNow() uint64 { return 1000 + uint64(w.bucket.Milliseconds()) }

func (w *world) endAtBound(name string, x modelEntry, cause protocol.HoldEnd, count string) {
	w.counts[count]++
	w.notify(name, x, protocol.KindLeaseLost, &protocol.LeaseLost{Session: x.s.id, Name: []byte(name), OrderID: x.order, Cause: cause})
	w.remove(name, x.s, 0)
}

func boundAsked(o *protocol.AcquireOptions) modelBound {
	if o == nil {
		return modelBound{}
	}
	return modelBound{knows: o.Flags&protocol.KnowsBounds != 0, hold: o.Hold}
}

// grantOf is what the answer about an entry says.
func (w *world) grantOf(x *modelEntry) *protocol.Grant {
	if !x.knows && x.want == 0 {
		return nil
	}
	g := &protocol.Grant{Now: w.bucketNow(), Until: x.until, Preemption: x.want}
	if x.wantUntil != 0 && (g.Until == 0 || x.wantUntil < g.Until) {
		g.Until = x.wantUntil
	}
	return g
}

// boundRefusal refuses what would have a bound without a word that it is known. No owner forgets it.
func (w *world) boundRefusal(m *protocol.Acquire, n *modelName, i int) protocol.Message {
	asked := boundAsked(m.Options)
	if i == 0 {
		x := &n.queue[0]
		if (x.until != 0 || x.said) && !asked.knows {
			w.t.Fatalf("an owner of %s with a bound asks again without a word that it knows that", m.Name)
		}
		if asked.hold != 0 && x.want != 0 {
			return &protocol.Failure{Message: "must yield"}
		}
		return nil
	}
	if string(m.Name) == "e" && !asked.knows {
		w.counts["bound refused"]++
		return &protocol.Failure{Refusal: protocol.RefusalBound}
	}
	return nil
}

// startHold gives an entry that is granted its bound.
func (w *world) startHold(name string, x *modelEntry) {
	hold := x.hold
	if name == "e" && (hold == 0 || hold > worldHold) {
		hold = worldHold
	}
	if hold != 0 && x.knows {
		x.until = w.bucketNow() + hold
	}
}

// setBound is what an entry that asks again says of bounds.
func (w *world) setBound(name string, x *modelEntry, o *protocol.AcquireOptions) {
	asked := boundAsked(o)
	x.knows = asked.knows
	if o == nil {
		return
	}
	if asked.hold != 0 && x.until != 0 {
		w.counts["extended"]++
		x.until = max(x.until, w.bucketNow()+asked.hold)
	}
	if o.Known != 0 && o.Known == x.want {
		w.counts["known"]++
		x.said = true
	}
}

// updatePreemption: the owner of f is preempted while somebody waits.
func (w *world) updatePreemption(name string) {
	n := w.names[name]
	if name != "f" || len(n.queue) == 0 {
		return
	}
	switch x := &n.queue[0]; {
	case len(n.queue) > 1 && x.want == 0:
		w.orders++
		x.want, x.wantUntil, x.said = w.orders, w.bucketNow()+worldYield, false
		w.notifyPreempted(name, x, false)
	case len(n.queue) == 1 && x.want != 0:
		w.notifyPreempted(name, x, true)
		x.want, x.wantUntil, x.said = 0, 0, false
	}
}

// notifyPreempted sends the event, which may be lost.
func (w *world) notifyPreempted(name string, x *modelEntry, over bool) {
	if w.chance(4) {
		return
	}
	m := &protocol.LeasePreempted{Session: x.s.id, Name: []byte(name), OrderID: x.order, Preemption: x.want, Over: over, Now: w.bucketNow()}
	if m.Until = x.until; !over && (m.Until == 0 || x.wantUntil < m.Until) {
		m.Until = x.wantUntil
	}
	w.notify(name, *x, protocol.KindLeasePreempted, m)
}
