package sim

import (
	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/protocol"
)

// semaphores are persistent ones with a limit, and ephemeral ones without.
var semaphores = [...]semaphore{{"one", 1}, {"two", 2}, {"three", 3}, {"ephemeral-a", protocol.Forever}, {"ephemeral-b", protocol.Forever}}

type semaphore struct {
	name  string
	limit uint64
}

// call is a call of a program.
type call struct {
	request *core.Request // nil: it is done, and its record is the pool's
	waiter  *waiter
	back    func() // gives the record back to its pool; nil: it has none
	done    bool
	result  core.Result

	// Of an acquire.
	acquire *core.Acquire // nil when it is done
	lease   core.Lease
	count   uint64 // units that the program relies on if it has the lease
	seen    bool   // the program has seen the grant
}

// newCall is the call of a request whose record is used once.
func (h *holder) newCall(r *core.Request) *call {
	x := &call{request: r, waiter: &waiter{w: h.c.w}}
	x.waiter.owner, r.Waiter = x, x.waiter
	return x
}

// poll has the caller run, if it was woken: it takes the result, and gives the record back. Callers
// run some time after they are woken.
func (x *call) poll(h *holder) {
	w := h.c.w
	if x == nil || x.done || x.waiter.woken == 0 || !w.faultsOver && w.fault(LateCaller, h.n, 0.2) {
		return
	}
	x.waiter.woken--
	x.done, x.result = true, x.request.Result
	if x.back != nil && !x.result.InBackground { // else the engine goes on with it
		x.back()
	}
	x.request, x.acquire = nil, nil
}

func (x *call) err() error { return x.result.Err }

// held reports whether the program has the lease. Whether it may rely on it is the session's
// question.
func (x *call) held() bool { return x != nil && x.done && x.err() == nil && x.lease.Over() == nil }

// slot is a program's use of one name. Two names have two slots each.
type slot struct {
	name      int
	acquire   *call // of what is held, waited for or asked for
	other     *call // a release, a change or a create that is under way
	inherited bool  // what a former holder of the session had there is not taken over yet, or given back
}

func (h *holder) stepSlot(i int) {
	w, t, now := h.c.w, &h.slots[i], h.c.clock()
	actor := h.n*8 + uint32(i)
	t.acquire.poll(h)
	t.other.poll(h)
	x := t.acquire
	switch {
	case t.other != nil:
		if t.other.done {
			w.operations++
			t.other = nil
		} else if w.fault(CancelWait, actor, 0.005) { // a release goes on in the background
			h.c.e.GiveUp(now, t.other.request, errGivenUp)
		}
	case x == nil:
		if !w.faultsOver && h.live() && h.close == nil && w.fault(Acquire, actor, 0.03) {
			h.drawAcquire(t, actor)
		}
	case x.done && x.err() == nil && (x.lease.Token == 0 || x.lease.Session != h.s):
		w.fail("an acquire of %s by holder %d returns no error, and its lease has token %d", semaphores[t.name].name, h.n, x.lease.Token)
	case !x.done:
		// A wait without an end ends when faults do.
		endless := x.acquire.Msg.Timeout == protocol.Forever || x.acquire.Turn == core.Free
		if w.fault(CancelWait, actor, 0.005) || w.faultsOver && endless {
			h.c.e.GiveUp(now, x.request, errGivenUp)
		}
	case !x.held():
		w.operations++
		t.acquire = nil
		if t.inherited && h.live() {
			h.releaseName(t)
		} else if x.result.Answered && protocol.StatusOf(x.err()) == protocol.StatusNotFound {
			h.create(t)
		}
	case !x.seen:
		w.operations++
		w.counts["granted"]++
		x.seen, t.inherited = true, false
	case w.fault(Release, actor, w.releaseChance) || x.preempted() && w.fault(Yield, actor, 0.1):
		r, other := h.c.takeRelease()
		if !h.c.plain && w.fault(LeaseTransfer, actor, 0.3) {
			r.Msg.To = w.heir(h, t, actor)
		}
		t.other, t.acquire = other, nil
		h.c.e.Release(now, &x.lease, r)
	case x.count > 1 && w.fault(Reduce, actor, 0.02):
		h.reduce(t)
	case !h.c.plain && w.fault(Extend, actor, 0.005):
		h.extend(t, actor)
	}
}

// drawAcquire acquires in some way.
func (h *holder) drawAcquire(t *slot, actor uint32) {
	w, count, timeout := h.c.w, uint64(1), uint64(0)
	if w.fault(Exclusive, actor, 0.4) {
		count = semaphores[t.name].limit
	}
	if w.fault(Wait, actor, 0.6) {
		timeout = []uint64{5_000, protocol.Forever}[w.pick(Wait, actor, 2)]
	}
	turn := []core.Turn{core.Next, core.Free, core.Now}[w.pick(Acquire, actor, 3)]
	var o *protocol.AcquireOptions
	if !h.c.plain {
		o = w.drawDemand(t, actor)
	}
	h.acquire(t, count, timeout, turn, o)
}

func (h *holder) acquire(t *slot, count, timeout uint64, turn core.Turn, o *protocol.AcquireOptions) {
	s := semaphores[t.name]
	a, x := h.c.takeAcquire()
	x.count = count
	a.Lease, a.Turn = &x.lease, turn
	a.Msg = protocol.Acquire{
		Name: []byte(s.name), Count: count, Timeout: timeout, Ephemeral: s.limit == protocol.Forever, Options: o,
	}
	t.acquire = x
	h.c.e.Acquire(h.c.clock(), h.s, s.name, a)
}

// releaseName gives back what the session has at a name, without a lease.
func (h *holder) releaseName(t *slot) {
	t.inherited = false
	r, other := h.c.takeRelease()
	t.other = other
	h.c.e.ReleaseName(h.c.clock(), h.s, semaphores[t.name].name, r)
}

// create creates a persistent semaphore that is not there yet.
func (h *holder) create(t *slot) {
	s := semaphores[t.name]
	m := &protocol.Create{Name: []byte(s.name), Limit: s.limit}
	if !h.c.plain && h.c.w.fault(QueueOptions, h.n, 0.6) {
		m.Options = h.drawOptions(s.limit)
	}
	h.call(t, protocol.KindCreate, m, &m.Head)
}

// call sends a request about a semaphore that is neither an acquire nor a release.
func (h *holder) call(t *slot, kind protocol.Kind, m protocol.Message, head *protocol.Head) {
	name := []byte(semaphores[t.name].name)
	x, other := h.c.takeCall()
	waiter := x.Waiter
	*x = core.Call{
		Request: core.Request{Waiter: waiter}, Kind: kind, Msg: m, Head: head, Reply: &protocol.Empty{}, Session: h.s,
		To: core.Target{Of: core.AtBucket, Tier: h.s.Tier, Bucket: protocol.Bucket(node, name, buckets)},
	}
	t.other = other
	h.c.e.Call(h.c.clock(), x)
}

// reduce gives all units but one back. The program relies on one from then on.
func (h *holder) reduce(t *slot) {
	x := &core.Change{Count: 1}
	t.acquire.count = 1
	t.other = h.newCall(&x.Request)
	h.c.e.Change(h.c.clock(), &t.acquire.lease, x)
}
