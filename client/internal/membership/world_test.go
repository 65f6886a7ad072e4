package membership

import (
	"errors"
	"math/rand/v2"
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
	w.r.Round(w.p.Epoch(), relay.StageOf(w.p.Phase(), w.p.AllowsMessages()), w.p.RoundSessions(nil))
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
