package process

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/server/servertest/seeds"
	"github.com/signalbox-dev/signalbox/shard/process/relay"
)

// simulation is one process with its members, in one of many possible histories: the network loses,
// delays and repeats; handlers fail; members and coordinators are killed, paused past the end of
// their sessions, evicted, cut off; leaders change, and log time stands still meanwhile.
type simulation struct {
	t        *testing.T
	rnd      *rand.Rand
	seed     uint64
	p        *Process
	r        *relay.Relay
	at       Now
	out      Out
	relayOut relay.Out
	noFaults bool // no more chaos
	agents   []*agent
	pool     []*call // under way to the log
	next     uint64  // session
	forced   uint64

	handlerFailRate int // one call of a handler in so many fails
	faultInterval   int // of so many steps of chaos one is done

	coordinators map[uint64]uint64 // epoch -> session
	completed    map[uint64]bool   // epoch completed by someone
	cancelled    map[uint64]bool   // epoch cancelled by someone who lived
	executed     map[[4]uint64]int // receiver, epoch, sender, number
	log          []func(p *Process, out *Out)
	tokens       map[string]uint64
	trace        bytes.Buffer // of events
	seen         map[string]int
}

func newSimulation(t *testing.T, seed uint64, o protocol.ProcessOptions) *simulation {
	w := &simulation{
		t: t, rnd: rand.New(rand.NewPCG(seed, 7)), seed: seed, r: relay.New(relay.Limits{}),
		coordinators: map[uint64]uint64{}, completed: map[uint64]bool{},
		cancelled: map[uint64]bool{}, executed: map[[4]uint64]int{},
		seen: map[string]int{}, tokens: map[string]uint64{},
	}
	at := w.at
	w.handlerFailRate, w.faultInterval = []int{3, 10, 50}[w.rnd.IntN(3)], 1+w.rnd.IntN(6)
	p, err := New(at, 0, o)
	if err != nil {
		t.Fatal(err)
	}
	w.p = p
	w.log = append(w.log, func(p *Process, out *Out) {})
	return w
}

func (w *simulation) fatal(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d: %s\n%+v", w.seed, fmt.Sprintf(format, args...), w.p.Describe())
}

func (w *simulation) chance(n int) bool { return w.rnd.IntN(n) == 0 }

// apply is one log entry: the call, then Tick; events go out to those attached.
func (w *simulation) apply(what func(p *Process, at Now, out *Out)) {
	at := w.at
	one := func(p *Process, out *Out) {
		what(p, at, out)
		p.Tick(at, out)
	}
	w.log = append(w.log, one)
	w.out.Reset()
	one(w.p, &w.out)
	if err := w.p.Check(); err != nil {
		w.fatal("%v", err)
	}
	fmt.Fprintf(&w.trace, "%+v", w.out)
	w.deliver()
	w.r.Round(w.p.Epoch(), relay.StageOf(w.p.Phase(), w.p.AllowsMessages()), w.p.RoundSessions(nil))
}

func (w *simulation) deliver() {
	for _, e := range w.out.Events {
		if a := w.agent(e.Session); a != nil && a.attached && a.joined && !a.dead {
			a.queue = append(a.queue, e)
		}
	}
}

func (w *simulation) deliverMessages() {
	for _, d := range w.relayOut.Deliveries {
		if a := w.agent(d.To); a != nil && a.attached && a.joined && !a.dead {
			a.queue = append(a.queue, d)
		}
	}
	w.relayOut.Reset()
}

// arrive applies a call that came through, perhaps late, perhaps for the second time.
func (w *simulation) arrive(c *call) {
	a := c.a
	if a.ended && c.kind == callJoin {
		return // the shard refuses sessions that are gone
	}
	if now := w.agent(a.session); now != a && now.joined {
		return // and requests under an attach epoch before the present one
	}
	stale := c.epoch > 0 && c.epoch < w.p.Epoch()
	before, tally := w.p.Digest(), w.p.counters
	var err error
	var completedEpoch uint64
	round, order := w.p.round.epoch, c.order
	w.apply(func(p *Process, at Now, out *Out) {
		switch c.kind {
		case callJoin:
			err = a.join(p, at, c, order, out)
		case callLeave:
			completedEpoch, err = p.Leave(at, a.session, out)
		case callPrepared:
			err = p.Prepared(at, a.session, c.epoch, out)
		case callFail:
			err = p.Fail(at, a.session, c.epoch, "unlucky", out)
		case callComplete:
			err = p.Complete(at, a.session, c.epoch, []byte(c.result), out)
		case callCompleted:
			err = p.Completed(at, a.session, c.epoch, out)
		}
	})
	if stale && w.p.round.epoch == round { // nothing was due meanwhile
		w.p.counters, tally = tally, w.p.counters
		if w.p.Digest() != before {
			w.fatal("call of epoch %d was accepted in %d", c.epoch, round)
		}
		w.p.counters = tally
		w.seen["stale"]++
		if err == nil && c.kind != callCompleted {
			w.fatal("call of epoch %d was answered OK in %d", c.epoch, round)
		}
	}
	if w.chance(3) && !w.noFaults {
		return // the answer is lost
	}
	w.answered(c, err, completedEpoch)
}

// join is a join as the shard carries it out: one that it has the answer of is answered again while
// that is true.
func (a *agent) join(p *Process, at Now, c *call, order uint64, out *Out) error {
	switch order {
	case 0:
		reply, err := p.Join(at, Join{Session: a.session, Key: a.key}, out)
		c.order, a.joined = reply.Order, err == nil
		return err
	case p.JoinOrder(a.session):
		p.Resend(a.session, out)
		return nil
	}
	return protocol.Errorf(protocol.StatusAborted, "it is a member no more")
}

func (w *simulation) answered(c *call, err error, completedEpoch uint64) {
	a := c.a
	if c.done || a.dead || a.paused {
		return
	}
	switch protocol.StatusOf(err) {
	case protocol.StatusOK, protocol.StatusAborted, protocol.StatusPreconditionFailed:
		c.done = true
		switch c.kind {
		case callJoin:
			a.member = err == nil
		case callLeave:
			w.close(a, completedEpoch, true)
			a.dead = true
		}
	case protocol.StatusNotFound: // no member any more
		c.done = true
		if c.kind == callJoin {
			return
		}
		w.attach(a)
	default:
		w.fatal("call %v of %d: %v", c.kind, a.session, err)
	}
}

func (w *simulation) step() {
	living := slices.DeleteFunc(slices.Clone(w.agents), func(a *agent) bool { return a.dead || a.paused })
	if len(living) == 0 {
		w.chaos()
		return
	}
	a := living[w.rnd.IntN(len(living))]
	switch n := w.rnd.IntN(100); {
	case n < 45:
		if len(a.queue) > 0 {
			w.handle(a)
		}
	case n < 65:
		if a.attached {
			w.repeat(a)
		} else if w.chance(3) || w.noFaults {
			w.attach(a)
		}
	case n < 90:
		if len(w.pool) > 0 {
			i := w.rnd.IntN(len(w.pool))
			c := w.pool[i]
			if w.noFaults || !w.chance(5) { // else it stays, to come a second time
				w.pool = slices.Delete(w.pool, i, i+1)
			}
			if w.noFaults || !w.chance(4) {
				w.arrive(c)
			}
		}
	case n < 99:
		w.at.Log += uint64(w.rnd.IntN(60))
		w.apply(func(*Process, Now, *Out) {})
	default:
		if w.chance(w.faultInterval) {
			w.chaos()
		}
	}
}

func (w *simulation) chaos() {
	if w.noFaults {
		return
	}
	var living []*agent
	for _, a := range w.agents {
		if !a.dead {
			living = append(living, a)
		}
	}
	if len(living) < 5 && w.chance(2) || len(living) == 0 {
		key := ""
		if w.chance(2) {
			key = "key" + strconv.Itoa(w.rnd.IntN(4))
		}
		w.join(key)
		return
	}
	a := living[w.rnd.IntN(len(living))]
	if w.chance(3) {
		for _, c := range living {
			if c.session == w.p.round.session {
				a = c
			}
		}
	}
	switch w.rnd.IntN(10) {
	case 0: // killed; its session ends at once or later
		a.dead, a.queue = true, nil
		if w.chance(2) {
			w.end(a)
		}
		if a.key != "" && w.chance(2) {
			w.join(a.key)
		}
	case 1: // paused, perhaps past the end of its session; it goes on believing
		a.paused = true
		if w.chance(2) {
			w.end(a)
		}
	case 2:
		for _, b := range w.agents {
			b.paused = false
		}
	case 3: // an election: what was under way is lost, time stands still, the relay is empty
		w.r = relay.New(relay.Limits{})
		w.pool = nil
		for _, b := range w.agents {
			b.attached, b.queue = false, nil
		}
		w.apply(func(*Process, Now, *Out) {})
		w.seen["elections"]++
	case 4:
		a.attached = false
	case 5:
		if !a.ended && a.member {
			a.call(callLeave, 0, "")
		}
	case 6:
		if w.chance(2) {
			w.forced++
			w.apply(func(p *Process, at Now, out *Out) { _ = p.Force(at, "", out) })
		} else {
			w.apply(func(p *Process, at Now, out *Out) { _ = p.Evict(at, a.session, "", out) })
		}
	case 7:
		if !a.ended && a.member {
			w.restore(a)
		}
	case 8:
		p, err := Decode(w.p.Append(nil))
		if err != nil {
			w.fatal("%v", err)
		}
		if p.Digest() != w.p.Digest() {
			w.fatal("digests differ after a restore")
		}
		w.p = p
	default:
		w.at.Log += uint64(w.rnd.IntN(400))
		w.apply(func(*Process, Now, *Out) {})
	}
}

// drain ends the chaos, and waits for what must come of it.
func (w *simulation) drain(steps int) {
	w.noFaults = true
	for _, a := range w.agents {
		a.paused = false
		if a.dead {
			w.end(a)
		}
	}
	for i := 0; i < steps; i++ {
		w.step()
		if i%200 == 0 { // the leader tells again now and then
			for _, a := range w.agents {
				w.out.Reset()
				w.p.Resend(a.session, &w.out)
				w.deliver()
				// its SDK finds out that the session is gone
				if a.ended && !a.dead && len(a.queue) == 0 && i > steps/2 {
					w.close(a, 0, false)
					a.dead = true
				}
			}
		}
		if i > steps/2 && w.drained() {
			return
		}
	}
	for _, a := range w.agents {
		if !a.dead {
			w.t.Logf("agent %+v calls %d", a, len(a.calls))
		}
	}
	w.fatal("it does not settle")
}

func TestRandomHistories(t *testing.T) {
	seen := map[string]int{}
	for seed := range seeds.Of(t, 20, 100) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		o := protocol.ProcessOptions{
			Election: protocol.ProcessElection(rnd.IntN(3)), Debounce: uint64(rnd.IntN(3)) * 50,
			RoundTimeout: uint64(rnd.IntN(3)) * 2_000, Return: uint64(rnd.IntN(3)) * 300,
		}
		w := newSimulation(t, seed, o)
		for range 4_000 {
			w.step()
		}
		w.drain(60_000)
		w.verify()
		w.checkReplay(o)
		for k, n := range w.seen {
			seen[k] += n
		}
		tally := w.p.Counters()
		seen["completed"] += int(tally.Completed)
		seen["cancelled"] += int(tally.Cancelled)
		seen["failed"] += int(tally.Failed)
		seen["returned"] += int(tally.Returned)
	}
	t.Log(seen)
	if !form.Is(form.Full) || seeds.Chosen() {
		return
	}
	for _, k := range []string{
		"stale", "resumed", "remembered", "elections", "completed", "cancelled",
		"failed", "returned", "restored in waiting", "restored in preparing", "restored in coordinating",
		"restored in completing", "restored in completed", "ended in waiting", "ended in preparing",
		"ended in coordinating", "ended in completing", "ended in completed", "coordinator ended in preparing",
		"coordinator ended in coordinating",
		"coordinator ended in completing", "coordinator ended in completed",
	} {
		if seen[k] == 0 {
			t.Errorf("no history met %q", k)
		}
	}
}
