package process

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
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

// agent is what the SDK must be: one member, its handler, and what it repeats until it is answered.
type agent struct {
	session  uint64
	key      string
	dead     bool // its process was killed, or it knows that it is no member any more
	ended    bool // its session is gone
	attached bool
	paused   bool
	member   bool
	queue    []any // Event or relay.Delivery

	epoch       uint64 // the highest seen
	open        bool   // prepared, and neither cancelled nor completed
	over        bool   // completed, cancelled or failed
	fulfilled   bool   // completed
	coordinates bool
	roster      []protocol.ProcessMember
	calls       []*call
	number      uint64
	missing     []uint64 // receivers that have not replied
	memory      map[[2]uint64]bool
	agreed      string
	agreedEpoch uint64

	prepares, cancels, completes int
}

type callKind int

const (
	callJoin callKind = iota
	callLeave
	callPrepared
	callFail
	callComplete
	callCompleted
)

type call struct {
	a      *agent
	kind   callKind
	epoch  uint64
	result string
	done   bool // answered
}

func newSimulation(t *testing.T, seed uint64, o protocol.ProcessOptions) *simulation {
	w := &simulation{
		t: t, rnd: rand.New(rand.NewPCG(seed, 7)), seed: seed, r: relay.New(relay.Limits{}), coordinators: map[uint64]uint64{}, completed: map[uint64]bool{},
		cancelled: map[uint64]bool{}, executed: map[[4]uint64]int{}, seen: map[string]int{}, tokens: map[string]uint64{},
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
	stage := relay.Closed
	switch {
	case w.p.AllowsMessages():
		stage = relay.Open
	case w.p.Phase() == protocol.PhasePreparing:
		stage = relay.Preparing
	}
	w.r.Round(w.p.Epoch(), stage, w.p.RoundSessions(nil))
}

func (w *simulation) deliver() {
	for _, e := range w.out.Events {
		if a := w.agent(e.Session); a != nil && a.attached && !a.dead {
			a.queue = append(a.queue, e)
		}
	}
}

func (w *simulation) deliverMessages() {
	for _, d := range w.relayOut.Deliveries {
		if a := w.agent(d.To); a != nil && a.attached && !a.dead {
			a.queue = append(a.queue, d)
		}
	}
	w.relayOut.Reset()
}

func (w *simulation) agent(session uint64) *agent {
	for _, a := range w.agents {
		if a.session == session {
			return a
		}
	}
	return nil
}

func (w *simulation) join(key string) *agent {
	w.next++
	session := w.next*7919%100_003 + 1 // ids in no order
	a := &agent{session: session, key: key, attached: true, memory: map[[2]uint64]bool{}}
	w.agents = append(w.agents, a)
	a.call(callJoin, 0, "")
	return a
}

func (a *agent) call(kind callKind, epoch uint64, result string) {
	for _, c := range a.calls {
		if c.kind == kind && c.epoch == epoch && !c.done {
			return
		}
	}
	a.calls = append(a.calls, &call{a: a, kind: kind, epoch: epoch, result: result})
}

// arrive applies a call that came through, perhaps late, perhaps for the second time.
func (w *simulation) arrive(c *call) {
	a := c.a
	if a.ended && c.kind == callJoin {
		return // the shard refuses sessions that are gone
	}
	stale := c.epoch > 0 && c.epoch < w.p.Epoch()
	before, tally := w.p.Digest(), w.p.counters
	var err error
	var completedEpoch uint64
	round := w.p.round.epoch
	w.apply(func(p *Process, at Now, out *Out) {
		switch c.kind {
		case callJoin:
			_, err = p.Join(at, Join{Session: a.session, Key: a.key}, out)
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

// close ends an open round: completed if it was settled, else cancelled.
func (w *simulation) close(a *agent, completedEpoch uint64, notified bool) {
	if !a.open {
		return
	}
	if completedEpoch == a.epoch {
		w.complete(a, a.agreed)
		return
	}
	a.open, a.over = false, true
	a.cancels++
	if notified && !a.ended {
		w.cancelled[a.epoch] = true
	}
}

func (w *simulation) complete(a *agent, result string) {
	if !a.open {
		w.fatal("%d completes %d, which is not open", a.session, a.epoch)
	}
	a.open, a.over, a.fulfilled = false, true, true
	a.completes++
	a.agreed, a.agreedEpoch = result, a.epoch
	w.completed[a.epoch] = true
}

func (w *simulation) fails() bool { return !w.noFaults && w.chance(w.handlerFailRate) }

// begin is what an agent does with a round that it did not know.
func (w *simulation) begin(a *agent, e *MemberEvent) bool {
	w.close(a, e.CompletedEpoch, true)
	if e.Token < e.Epoch {
		w.fatal("token %d is below epoch %d", e.Token, e.Epoch)
	}
	a.epoch, a.open, a.over, a.fulfilled, a.coordinates, a.roster, a.missing = e.Epoch, false, false, false, false, e.Members, nil
	a.calls = slices.DeleteFunc(a.calls, func(c *call) bool { return c.epoch > 0 })
	clear(a.memory)
	if w.fails() {
		return false
	}
	a.open = true
	a.prepares++
	if e.Kind == EventPrepare {
		w.tokens[a.key] = max(w.tokens[a.key], e.Token)
	}
	return true
}

func (w *simulation) handle(a *agent) {
	item := a.queue[0]
	a.queue = a.queue[1:]
	if d, ok := item.(relay.Delivery); ok {
		w.handleMessage(a, &d)
		return
	}
	e := item.(MemberEvent)
	if e.Kind != EventRemoved && e.Epoch < a.epoch {
		return
	}
	switch e.Kind {
	case EventPrepare:
		switch {
		case e.Epoch > a.epoch:
			if w.begin(a, &e) {
				a.call(callPrepared, e.Epoch, "")
			} else {
				a.over = true
				a.call(callFail, e.Epoch, "")
			}
		case a.open:
			a.call(callPrepared, e.Epoch, "")
		}
	case EventCoordinate:
		if e.Epoch != a.epoch || !a.open || a.coordinates {
			return
		}
		a.coordinates = true
		if s, ok := w.coordinators[e.Epoch]; ok && s != a.session {
			w.fatal("epoch %d has coordinators %d and %d", e.Epoch, s, a.session)
		}
		w.coordinators[e.Epoch] = a.session
		if w.fails() {
			a.call(callFail, e.Epoch, "")
			return
		}
		a.number++
		for _, m := range a.roster {
			a.missing = append(a.missing, m.Session)
		}
	case EventCancel:
		if e.Epoch == a.epoch {
			w.close(a, e.CompletedEpoch, true)
			a.over = true
		}
	case EventComplete:
		switch {
		case e.Epoch == a.epoch && a.open:
			w.complete(a, string(e.Result))
			a.call(callCompleted, e.Epoch, "")
		case e.Epoch == a.epoch && a.fulfilled:
			a.call(callCompleted, e.Epoch, "")
		default:
			w.fatal("%d is told to complete %d, and has %+v", a.session, e.Epoch, a)
		}
	case EventResume:
		if e.Epoch > a.epoch && a.key != "" {
			if e.Token <= w.tokens[a.key] {
				w.fatal("%d returns with token %d, and %d was given to another session of its key", a.session, e.Token, w.tokens[a.key])
			}
		}
		if e.Epoch > a.epoch && !w.begin(a, &e) {
			a.epoch-- // told again
			return
		}
		if a.open {
			w.complete(a, string(e.Result))
			w.tokens[a.key] = max(w.tokens[a.key], e.Token)
		}
		a.call(callCompleted, e.Epoch, "")
		w.seen["resumed"]++
	case EventRemoved:
		w.close(a, e.CompletedEpoch, true)
		a.dead = true
	}
}

func (w *simulation) handleMessage(a *agent, d *relay.Delivery) {
	if d.Epoch != a.epoch {
		return
	}
	switch d.Kind {
	case relay.KindRequest:
		key := [2]uint64{d.From, d.Number}
		refused := false
		switch {
		case a.memory[key]: // the remembered reply
			w.seen["remembered"]++
		case !a.open:
			return
		case w.fails():
			refused = true
		default:
			a.memory[key] = true
			a.agreed = string(d.Payload)
			w.executed[[4]uint64{a.session, d.Epoch, d.From, d.Number}]++
		}
		if a.paused || w.fails() {
			return // lost
		}
		if err := w.r.Reply(relay.Reply{From: a.session, To: d.From, Epoch: d.Epoch, Number: d.Number, Refused: refused}, &w.relayOut); err == nil {
			w.deliverMessages()
		}
	case relay.KindReply:
		if i := slices.Index(a.missing, d.From); i >= 0 && a.open {
			a.missing = slices.Delete(a.missing, i, i+1)
			if len(a.missing) == 0 {
				a.call(callComplete, a.epoch, strconv.FormatUint(a.epoch, 10))
			}
		}
	}
}

// repeat sends what is unanswered.
func (w *simulation) repeat(a *agent) {
	for _, c := range a.calls {
		if !c.done && len(w.pool) < 500 {
			w.pool = append(w.pool, c)
		}
	}
	a.calls = slices.DeleteFunc(a.calls, func(c *call) bool { return c.done })
	if a.open && a.coordinates && len(a.missing) > 0 {
		q := relay.Request{
			From: a.session, Epoch: a.epoch, Number: a.number, Low: a.number, To: slices.Clone(a.missing), Payload: []byte(strconv.FormatUint(a.epoch, 10)),
		}
		if err := w.r.Request(q, &w.relayOut); err == nil {
			w.deliverMessages()
		}
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

func (w *simulation) attach(a *agent) {
	if a.ended || a.dead {
		return
	}
	a.attached, a.queue = true, nil
	w.out.Reset()
	if !w.p.Resend(a.session, &w.out) && a.member { // it is no member any more
		w.close(a, 0, false)
		a.dead = true
	}
	w.deliver()
	w.r.SessionAttached(a.session, &w.relayOut)
	w.deliverMessages()
}

// end is the session's: the log says so.
func (w *simulation) end(a *agent) {
	if !a.ended {
		a.ended, a.attached = true, false
		w.seen["ended in "+w.p.Phase().String()]++
		if w.coordinators[w.p.Epoch()] == a.session || w.p.round.session == a.session {
			w.seen["coordinator ended in "+w.p.Phase().String()]++
		}
		w.apply(func(p *Process, at Now, out *Out) { p.SessionEnded(at, a.session, out) })
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
	switch w.rnd.IntN(9) {
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
				if a.ended && !a.dead && len(a.queue) == 0 && i > steps/2 { // its SDK finds out that the session is gone
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

func (w *simulation) drained() bool {
	if w.p.Phase() == protocol.PhaseIdle {
		return !slices.ContainsFunc(w.agents, func(a *agent) bool { return !a.dead })
	}
	if w.p.Phase() != protocol.PhaseCompleted {
		return false
	}
	for _, a := range w.agents {
		if !a.dead && (a.ended || a.agreedEpoch != w.p.Epoch() || a.open) {
			return false
		}
	}
	return true
}

// verify is what must hold at the end of every history.
func (w *simulation) verify() {
	for _, a := range w.agents {
		open := 0
		if a.open {
			open = 1
		}
		if a.prepares != a.cancels+a.completes+open || open == 1 && !a.dead {
			w.fatal("agent %d: %d prepares, %d cancels, %d completes", a.session, a.prepares, a.cancels, a.completes)
		}
		if !a.dead && a.agreed != string(w.p.round.result) {
			w.fatal("agent %d holds %q, the others %q", a.session, a.agreed, w.p.round.result)
		}
	}
	for e := range w.completed {
		if w.cancelled[e] {
			w.fatal("epoch %d was completed by some and cancelled by others", e)
		}
	}
	for k, n := range w.executed {
		if n > 1 {
			w.fatal("request %v was executed %d times", k, n)
		}
	}
	if t := w.p.Counters(); t.Completed > t.Changes+w.forced {
		w.fatal("%d rounds completed for %d changes and %d forced", t.Completed, t.Changes, w.forced)
	}
}

// checkReplay applies the log to another process, with restores at other places, and compares.
func (w *simulation) checkReplay(o protocol.ProcessOptions) {
	p, _ := New(Now{}, 0, o)
	var trace bytes.Buffer
	var out Out
	for i, one := range w.log {
		out.Reset()
		one(p, &out)
		if i > 0 {
			fmt.Fprintf(&trace, "%+v", out)
		}
		if i%97 == 5 {
			q, err := Decode(p.Append(nil))
			if err != nil {
				w.fatal("%v", err)
			}
			p = q
		}
	}
	if p.Digest() != w.p.Digest() || !bytes.Equal(trace.Bytes(), w.trace.Bytes()) {
		w.fatal("a replay of the log differs")
	}
}

func TestRandomHistories(t *testing.T) {
	histories := 100
	if s := os.Getenv("SIGNALBOX_HISTORIES"); s != "" {
		histories, _ = strconv.Atoi(s)
	}
	first := uint64(1)
	if s := os.Getenv("SIGNALBOX_SEED"); s != "" {
		first, _ = strconv.ParseUint(s, 10, 64)
	}
	seen := map[string]int{}
	for i := range histories {
		seed := first + uint64(i)
		rnd := rand.New(rand.NewPCG(seed, 1))
		o := protocol.ProcessOptions{
			Election: protocol.ProcessElection(rnd.IntN(3)), Debounce: uint64(rnd.IntN(3)) * 50, RoundTimeout: uint64(rnd.IntN(3)) * 2_000, Return: uint64(rnd.IntN(3)) * 300,
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
	if histories < 100 {
		return
	}
	for _, k := range []string{
		"stale", "resumed", "remembered", "elections", "completed", "cancelled", "failed", "returned", "ended in waiting", "ended in preparing",
		"ended in coordinating", "ended in completing", "ended in completed", "coordinator ended in preparing", "coordinator ended in coordinating",
		"coordinator ended in completing", "coordinator ended in completed",
	} {
		if seen[k] == 0 {
			t.Errorf("no history met %q", k)
		}
	}
}
