package membership

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	server "github.com/signalbox-dev/signalbox/shard/process"
	"github.com/signalbox-dev/signalbox/shard/process/relay"
)

// world is one process of a server with its members, each of them a Machine with a handler, in one
// of many possible histories: what is sent and answered is lost, late and repeated; handlers fail,
// take their time and reply from elsewhere; members are killed, paused past the end of their
// sessions, evicted, cut off; leaders change.
type world struct {
	t        *testing.T
	seed     uint64
	rnd      *rand.Rand
	p        *server.Process
	r        *relay.Relay
	at       server.Now
	out      server.Out
	messages relay.Out
	members  []*testMember
	next     uint64
	quiet    bool
	seen     map[string]int

	failureOdds int
	completed   map[uint64]bool // epoch, by anyone
	cancelled   map[uint64]bool // by anyone whose session lived
	executed    map[[4]uint64]bool
}

// testMember is a member with its handler, which agrees on the coordinator's session.
type testMember struct {
	m        *Machine
	session  uint64
	key      string
	joined   bool // the server answered the join
	attached bool
	dead     bool
	paused   bool
	ended    bool // the session, at the server
	queue    []any
	sends    []Send
	running  *Job
	async    []Job // messages that are replied to later

	open     uint64            // epoch prepared and neither cancelled nor completed
	last     uint64            // epoch of the last prepare
	did      map[string]bool   // "prepare 7": what ran with success
	asked    map[uint64]uint64 // number -> epoch, not answered yet
	superior map[uint64]bool   // epochs whose context ended
	agreed   uint64            // epoch completed last
	over     bool              // Terminate has run
}

func (w *world) fatal(format string, args ...any) {
	w.t.Helper()
	w.t.Logf("SIGNALBOX_SEED=%d", w.seed)
	w.t.Fatalf(format, args...)
}

func (w *world) chance(n int) bool { return w.rnd.IntN(n) == 0 }

func (w *world) fails() error {
	if !w.quiet && w.chance(w.failureOdds) {
		return errors.New("unlucky")
	}
	return nil
}

func (w *world) now() time.Duration { return time.Duration(w.at.Log) * time.Millisecond }

// apply is one log entry.
func (w *world) apply(f func()) {
	w.out.Reset()
	f()
	w.p.Tick(w.at, &w.out)
	if err := w.p.Check(); err != nil {
		w.fatal("%v", err)
	}
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

func (w *world) deliver() {
	for _, e := range w.out.Events {
		a := w.member(e.Session)
		if a == nil || !a.attached || a.dead {
			continue
		}
		m := &protocol.ProcessRound{
			Session: e.Session, Kind: protocol.ProcessRoundKind(e.Kind), Removal: protocol.ProcessRemoval(e.Removal),
			Epoch: e.Epoch, Topology: e.Topology,
			Coordinator: e.Coordinator, Attempt: e.Attempt, Token: e.Token, CompletedEpoch: e.CompletedEpoch,
			Result: e.Result, Text: e.Text,
		}
		for _, o := range e.Members {
			m.Members = append(m.Members, protocol.ProcessMember{Session: o.Session, Order: o.Order, Key: o.Key})
		}
		a.queue = append(a.queue, m)
	}
	w.out.Reset()
}

func (w *world) deliverMessages() {
	for _, d := range w.messages.Deliveries {
		if a := w.member(d.To); a != nil && a.attached && !a.dead {
			a.queue = append(a.queue, &protocol.ProcessMessage{
				Session: d.To, Kind: protocol.ProcessMessageKind(d.Kind), From: d.From, Epoch: d.Epoch,
				Number: d.Number, Low: d.Low, Payload: d.Payload,
			})
		}
	}
	w.messages.Reset()
}

func (w *world) member(session uint64) *testMember {
	for _, a := range w.members {
		if a.session == session {
			return a
		}
	}
	return nil
}

func (w *world) join(key string) {
	w.next++
	a := &testMember{
		session: w.next*7919%100_003 + 1, key: key, attached: true, joined: true, did: map[string]bool{},
		asked: map[uint64]uint64{}, superior: map[uint64]bool{},
	}
	a.m = New(a.session, Options{Seed: w.next, MaxProcessFailures: w.rnd.IntN(4)})
	w.members = append(w.members, a)
	w.apply(func() {
		if _, err := w.p.Join(w.at, server.Join{Session: a.session, Key: key}, &w.out); err != nil {
			w.fatal("join: %v", err)
		}
	})
}

// arrive is a send at the server.
func (w *world) arrive(a *testMember, s Send) {
	var err error
	switch s.Kind {
	case protocol.KindProcessConfirm:
		if s.Step == protocol.StepPrepared && !a.did[did(JobPrepare, s.Epoch)] ||
			s.Step == protocol.StepCompleted && !a.did[did(JobComplete, s.Epoch)] {
			w.fatal("%d confirms step %d of %d, and has not done it", a.session, s.Step, s.Epoch)
		}
		w.apply(func() {
			if s.Step == protocol.StepPrepared {
				err = w.p.Prepared(w.at, a.session, s.Epoch, &w.out)
			} else {
				err = w.p.Completed(w.at, a.session, s.Epoch, &w.out)
			}
		})
	case protocol.KindProcessFail:
		w.apply(func() { err = w.p.Fail(w.at, a.session, s.Epoch, s.Text, &w.out) })
	case protocol.KindProcessComplete:
		w.apply(func() { err = w.p.Complete(w.at, a.session, s.Epoch, s.Payload, &w.out) })
	case protocol.KindProcessSync:
		w.out.Reset()
		if !w.p.Resend(a.session, &w.out) {
			err = protocol.StatusNotFound
		}
		w.deliver()
		w.r.SessionAttached(a.session, &w.messages)
		w.deliverMessages()
	case protocol.KindProcessRequest:
		if s.Low == 0 || s.Low > s.Number || len(s.To) == 0 {
			w.fatal("%d sends %+v", a.session, s)
		}
		err = w.r.Request(relay.Request{From: a.session, Epoch: s.Epoch, Number: s.Number, Low: s.Low, To: s.To,
			Payload: s.Payload}, &w.messages)
		w.deliverMessages()
	case protocol.KindProcessReply:
		err = w.r.Reply(relay.Reply{From: a.session, To: s.To[0], Epoch: s.Epoch, Number: s.Number,
			Refused: s.Refused, Payload: s.Payload}, &w.messages)
		w.deliverMessages()
	}
	status := protocol.StatusOf(err)
	if status == protocol.StatusBadRequest {
		w.fatal("%d sends %+v: %v", a.session, s, err)
	}
	if w.chance(4) && !w.quiet {
		status = protocol.StatusUnavailable // the answer is lost
	}
	if !a.dead {
		a.m.Answered(w.now(), s, status)
	}
}

func did(k JobKind, epoch uint64) string { return k.String() + " " + strconv.FormatUint(epoch, 10) }

// run begins the next callback, or ends the one that runs.
func (w *world) run(a *testMember) {
	if a.running == nil {
		j, ok := a.m.NextJob()
		if !ok {
			return
		}
		w.begins(a, &j)
		a.running = &j
		if w.chance(2) {
			return // it takes its time
		}
	}
	j := *a.running
	a.running = nil
	err := w.does(a, &j)
	if err == nil && j.Round != nil {
		a.did[did(j.Kind, j.Round.Epoch)] = true
	}
	a.m.JobDone(w.now(), j, err)
}

// begins checks what may run when.
func (w *world) begins(a *testMember, j *Job) {
	w.seen[j.Kind.String()]++
	if a.over {
		w.fatal("%d: %v runs after terminate", a.session, j.Kind)
	}
	switch j.Kind {
	case JobTerminate:
		if a.open != 0 || len(a.asked) > 0 {
			w.fatal("%d terminates with round %d open and messages %v", a.session, a.open, a.asked)
		}
	case JobPrepare:
		if a.open != 0 || j.Round.Epoch <= a.last && !j.Round.Resumed {
			w.fatal("%d prepares %d after %d, with %d open", a.session, j.Round.Epoch, a.last, a.open)
		}
		if j.Round.Token < j.Round.Epoch {
			w.fatal("token %d is below epoch %d", j.Round.Token, j.Round.Epoch)
		}
		a.last = j.Round.Epoch
	case JobGivenUp:
		if a.asked[j.Number] != j.Round.Epoch || a.open == j.Round.Epoch {
			w.fatal("%d: message %d of %d is given up; open %d, asked %v", a.session, j.Number, j.Round.Epoch, a.open, a.asked)
		}
		delete(a.asked, j.Number)
	default:
		if a.open != j.Round.Epoch {
			w.fatal("%d: %v of %d with %d open", a.session, j.Kind, j.Round.Epoch, a.open)
		}
	}
	if !a.attached {
		w.seen["ran while cut off"]++
	}
}

// does is the handler.
func (w *world) does(a *testMember, j *Job) error {
	switch j.Kind {
	case JobPrepare:
		if err := w.fails(); err != nil {
			return err
		}
		a.open = j.Round.Epoch
	case JobCoordinate:
		if j.Round.Coordinator != a.session {
			w.fatal("%d coordinates the round of %d", a.session, j.Round.Coordinator)
		}
		if err := w.fails(); err != nil {
			return err
		}
		if a.did[did(JobCoordinate, j.Round.Epoch)] {
			w.fatal("%d coordinates %d twice", a.session, j.Round.Epoch)
		}
		var to []uint64
		for _, o := range j.Round.Members {
			to = append(to, o.Session)
		}
		for range 1 + w.rnd.IntN(3) {
			n, err := a.m.Request(j.Round.Epoch, to, []byte("agree"))
			if err == nil {
				a.asked[n] = j.Round.Epoch
			} else if !errors.Is(err, ErrRoundOver) {
				w.fatal("ask: %v", err)
			}
		}
	case JobAnswered:
		if a.asked[j.Number] != j.Round.Epoch || len(j.Answers) != len(j.Round.Members) {
			w.fatal("%d has %d answers of %d members to %d", a.session, len(j.Answers), len(j.Round.Members), j.Number)
		}
		if delete(a.asked, j.Number); len(a.asked) > 0 {
			break
		}
		if err := a.m.Complete(j.Round.Epoch, []byte(strconv.FormatUint(j.Round.Epoch, 10))); err != nil && !errors.Is(err, ErrRoundOver) {
			w.fatal("complete: %v", err)
		}
	case JobProcess:
		if err := w.fails(); err != nil {
			return err
		}
		key := [4]uint64{a.session, j.Round.Epoch, j.From, j.Number}
		if w.executed[key] {
			w.fatal("message %v runs twice with success", key)
		}
		w.executed[key] = true
		if w.chance(3) {
			a.async = append(a.async, *j)
			return nil
		}
		w.replies(a, j)
	case JobComplete:
		if s := string(j.Round.Result); s != "" && s != strconv.FormatUint(j.Round.Epoch, 10) {
			w.fatal("round %d has result %q", j.Round.Epoch, s)
		}
		w.completed[j.Round.Epoch] = true
		a.open, a.agreed = 0, j.Round.Epoch
	case JobCancel:
		if !a.superior[j.Round.Epoch] {
			w.fatal("%d cancels %d before its context ended", a.session, j.Round.Epoch)
		}
		if !a.ended && !errors.Is(a.m.Ended(), ErrNotMember) {
			w.cancelled[j.Round.Epoch] = true
		}
		a.open = 0
	case JobTerminate:
		a.over = true
	}
	return nil
}

func (w *world) replies(a *testMember, j *Job) {
	err := a.m.Reply(j.Round.Epoch, j.From, j.Number, []byte("yes"))
	if err != nil && !errors.Is(err, ErrRoundOver) && !errors.Is(err, ErrRequestGone) {
		w.fatal("reply: %v", err)
	}
	if err == nil {
		if again := a.m.Reply(j.Round.Epoch, j.From, j.Number, []byte("no")); !errors.Is(again, ErrReplied) {
			w.fatal("a second reply gives %v", again)
		}
	}
}

// take takes what the machine wants.
func (w *world) take(a *testMember) {
	r := a.m.Take()
	a.sends = append(a.sends, r.Sends...)
	for _, e := range r.Superseded {
		a.superior[e] = true
		if a.running != nil && a.running.Round != nil && a.running.Round.Epoch == e && a.running.Kind != JobComplete {
			w.seen["context ended while a callback ran"]++
		}
	}
}

func (w *world) step() {
	living := slices.DeleteFunc(slices.Clone(w.members), func(a *testMember) bool { return a.dead || a.paused })
	if len(living) == 0 {
		w.chaos()
		return
	}
	a := living[w.rnd.IntN(len(living))]
	switch n := w.rnd.IntN(100); {
	case n < 30:
		if len(a.queue) > 0 {
			switch m := a.queue[0].(type) {
			case *protocol.ProcessRound:
				a.m.HandleRound(w.now(), m)
			case *protocol.ProcessMessage:
				a.m.HandleMessage(w.now(), m)
			}
			a.queue = slices.Delete(a.queue, 0, 1)
		}
	case n < 55:
		w.run(a)
	case n < 80:
		if len(a.sends) == 0 {
			break
		}
		if !a.attached {
			if w.quiet || w.chance(3) {
				w.attach(a)
			}
			break
		}
		i := w.rnd.IntN(len(a.sends))
		s := a.sends[i]
		a.sends = slices.Delete(a.sends, i, i+1)
		if !w.quiet && w.chance(6) {
			a.m.Answered(w.now(), s, protocol.StatusUnavailable) // it is lost
		} else {
			w.arrive(a, s)
		}
	case n < 85:
		if len(a.async) > 0 {
			j := a.async[0]
			a.async = slices.Delete(a.async, 0, 1)
			w.replies(a, &j)
		}
	case n < 90:
		if !a.attached && (w.quiet || w.chance(3)) {
			w.attach(a)
		}
		a.m.Tick(w.now())
	case n < 99:
		w.at.Log += uint64(w.rnd.IntN(60))
		w.apply(func() {})
	default:
		if w.chance(4) {
			w.chaos()
		}
	}
	w.take(a)
	if a.over {
		a.dead = true
	}
}

// attach gives the agent a new connection. What was on its way on the former one is lost, or
// arrives now and is answered to nobody.
func (w *world) attach(a *testMember) {
	if a.ended {
		a.m.End(w.now(), 0, errors.New("session ended"))
		return
	}
	a.attached, a.queue = true, nil
	flying := a.sends
	a.sends = nil
	for _, s := range flying {
		a.m.Answered(w.now(), s, protocol.StatusUnavailable)
	}
	a.m.Connected(w.now())
}

func (w *world) end(a *testMember) {
	if !a.ended {
		a.ended, a.attached = true, false
		w.seen["ended in "+w.p.Phase().String()]++
		w.apply(func() { w.p.SessionEnded(w.at, a.session, &w.out) })
	}
}

func (w *world) chaos() {
	if w.quiet {
		return
	}
	living := slices.DeleteFunc(slices.Clone(w.members), func(a *testMember) bool { return a.dead })
	if len(living) < 5 && w.chance(2) || len(living) == 0 {
		key := ""
		if w.chance(2) {
			key = "key" + strconv.Itoa(w.rnd.IntN(3))
		}
		w.join(key)
		return
	}
	a := living[w.rnd.IntN(len(living))]
	switch w.rnd.IntN(8) {
	case 0: // killed
		a.dead = true
		w.end(a)
		if a.key != "" && w.chance(2) {
			w.join(a.key)
		}
	case 1: // paused, perhaps past the end of its session
		a.paused = true
		if w.chance(2) {
			w.end(a)
		}
	case 2:
		for _, b := range w.members {
			b.paused = false
		}
	case 3: // an election
		w.r = relay.New(relay.Limits{})
		for _, b := range w.members {
			b.attached, b.queue = false, nil
		}
		w.apply(func() {})
		w.seen["elections"]++
	case 4:
		a.attached = false
	case 5: // it leaves
		if !a.ended && a.m.Ended() == nil {
			var completed uint64
			var err error
			w.apply(func() { completed, err = w.p.Leave(w.at, a.session, &w.out) })
			if err == nil {
				a.m.End(w.now(), completed, errors.New("left"))
				w.seen["left"]++
			}
		}
	case 6:
		if w.chance(2) {
			w.apply(func() { _ = w.p.Force(w.at, "", &w.out) })
		} else {
			w.apply(func() { _ = w.p.Evict(w.at, a.session, "", &w.out) })
		}
	default:
		w.at.Log += uint64(w.rnd.IntN(2_000))
		w.apply(func() {})
	}
	w.take(a)
}

// runUntilQuiet ends the chaos. What must come of it is that all who live hold the same round, and
// nothing is left to do.
func (w *world) runUntilQuiet(steps int) {
	w.quiet = true
	for _, a := range w.members {
		a.paused = false
		if a.ended && !a.dead {
			a.m.End(w.now(), 0, errors.New("session ended"))
			w.take(a)
		}
	}
	for i := range steps {
		w.step()
		if i%300 == 0 { // the leader tells again now and then
			for _, a := range w.members {
				w.out.Reset()
				w.p.Resend(a.session, &w.out)
				w.deliver()
			}
		}
		if i%100 == 0 && w.isQuiet() {
			return
		}
	}
	for _, a := range w.members {
		if !a.dead {
			w.t.Logf("agent %d: epoch %d open %d agreed %d jobs %d duties %d running %v asked %v queue %d sends %d attached %v",
				a.session, a.m.epoch, a.open, a.agreed,
				len(a.m.jobs), len(a.m.pending), a.running != nil, a.asked, len(a.queue), len(a.sends), a.attached)
		}
	}
	w.fatal("it does not settle: %v of epoch %d with %d members", w.p.Phase(), w.p.Epoch(), w.p.Len())
}

func (w *world) isQuiet() bool {
	if w.p.Phase() != protocol.PhaseCompleted && w.p.Phase() != protocol.PhaseIdle {
		return false
	}
	for _, a := range w.members {
		if a.dead {
			continue
		}
		if a.open != 0 || a.running != nil || len(a.m.jobs) > 0 || len(a.asked) > 0 || a.agreed != w.p.Epoch() ||
			len(a.m.pending) > 0 || len(a.queue) > 0 || len(a.sends) > 0 {
			return false
		}
	}
	return true
}

// TestRandomHistories plays machines against the server's own state machine and relay.
// SIGNALBOX_HISTORIES=n plays more, SIGNALBOX_SEED=n begins with that one.
func TestRandomHistories(t *testing.T) {
	histories, first := 200, uint64(1)
	if n, err := strconv.Atoi(os.Getenv("SIGNALBOX_HISTORIES")); err == nil {
		histories = n
	}
	if n, err := strconv.ParseUint(os.Getenv("SIGNALBOX_SEED"), 10, 64); err == nil {
		first = n
	}
	seen := map[string]int{}
	for i := range histories {
		seed := first + uint64(i)
		rnd := rand.New(rand.NewPCG(seed, 1))
		p, err := server.New(server.Now{}, 0, protocol.ProcessOptions{
			Election: protocol.ProcessElection(rnd.IntN(3)), Debounce: uint64(rnd.IntN(3)) * 50,
			RoundTimeout: uint64(rnd.IntN(3)) * 4_000, Return: uint64(rnd.IntN(3)) * 900,
		})
		if err != nil {
			t.Fatal(err)
		}
		w := &world{
			t: t, seed: seed, rnd: rnd, p: p, r: relay.New(relay.Limits{}), seen: seen, failureOdds: []int{3, 10, 50}[rnd.IntN(3)],
			completed: map[uint64]bool{}, cancelled: map[uint64]bool{}, executed: map[[4]uint64]bool{},
		}
		for range 4_000 {
			w.step()
		}
		w.runUntilQuiet(200_000)
		for e := range w.completed {
			if w.cancelled[e] {
				w.fatal("epoch %d was completed by some and cancelled by others", e)
			}
		}
	}
	t.Log(seen)
	if histories < 200 {
		return
	}
	for _, k := range []string{
		"prepare", "coordinate", "process", "complete", "cancel", "answered", "given-up", "terminate", "left",
		"elections", "ran while cut off",
		"context ended while a callback ran", "ended in preparing", "ended in coordinating", "ended in completing", "ended in completed",
	} {
		if seen[k] == 0 {
			t.Errorf("no history met %q", k)
		}
	}
}
