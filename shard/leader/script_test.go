package leader

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

func init() { flag.Var(flag.Lookup("rewrite").Value, "update", "rewrite the scripts") }

// The scripts tell what a leader does as stories. Each command is a call; below the line is all
// that Take returns after it. Sessions are named bucket.counter, bucket b is owned by shard b under
// epoch 1 unless "route" says otherwise; the leader's own shard is 1.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		w := newHarness()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return w.run(t, d)
		})
	})
}

// harness is one leader and what surrounds it.
type harness struct {
	l        *Leader
	now      uint64
	routes   map[uint32][2]uint64
	heard    map[uint64]uint64
	closed   map[uint64]bool
	deadline uint64
	table    map[uint64]sessionStatus // home sessions, by id
	inactive map[uint32]bool
	epochs   map[uint32]uint64
	remotes  map[uint64]sessionStatus
	tracks   map[uint64]int // of remote sessions
}

func newHarness() *harness {
	w := &harness{
		now: 10_000, routes: map[uint32][2]uint64{}, heard: map[uint64]uint64{}, closed: map[uint64]bool{},
		table: map[uint64]sessionStatus{}, inactive: map[uint32]bool{}, epochs: map[uint32]uint64{},
		remotes: map[uint64]sessionStatus{}, tracks: map[uint64]int{},
	}
	w.l = New(Config{Shard: 1, Route: func(_ uint8, b uint32) (uint64, uint64) {
		if r, ok := w.routes[b]; ok {
			return r[0], r[1]
		}
		return uint64(b), 1
	}})
	return w
}

func (w *harness) HomeBucket(s uint64) (uint64, bool) {
	b := protocol.SessionBucket(s)
	if protocol.SessionTier(s) != 0 || b != 1 || w.inactive[b] {
		return 0, false
	}
	return max(w.epochs[b], 1), true
}

func (w *harness) Session(s uint64) (shard.SessionView, bool) {
	e, ok := w.table[s]
	return shard.SessionView{Epoch: e.epoch, Description: e.description, Attached: e.state != stateDetached}, ok
}

func (w *harness) RemoteSession(s uint64) (shard.RemoteSessionView, bool) {
	e, ok := w.remotes[s]
	return shard.RemoteSessionView{Epoch: e.epoch, Description: e.description,
		Tracks: w.tracks[s], Detached: e.state == stateDetached}, ok
}

func sessionID(t testing.TB, name string) uint64 {
	var b, n uint64
	if _, err := fmt.Sscanf(name, "%d.%d", &b, &n); err != nil {
		t.Fatalf("session %q: %v", name, err)
	}
	return protocol.MakeSessionID(0, uint16(b), n)
}

func sessionName(id uint64) string {
	return fmt.Sprintf("%d.%d", protocol.SessionBucket(id), id&(1<<36-1))
}

// args gives access to a command's arguments by name, with defaults.
type args struct {
	t *testing.T
	d *datadriven.TestData
}

func (a args) num(key string, otherwise uint64) uint64 {
	for _, c := range a.d.CmdArgs {
		if c.Key == key && len(c.Vals) > 0 {
			v, err := strconv.ParseUint(c.Vals[0], 10, 64)
			if err != nil {
				a.d.Fatalf(a.t, "%s: %v", key, err)
			}
			return v
		}
	}
	return otherwise
}

func (a args) text(key string) string {
	for _, c := range a.d.CmdArgs {
		if c.Key == key && len(c.Vals) > 0 {
			return strings.ReplaceAll(c.Vals[0], "_", " ")
		}
	}
	return ""
}

func (a args) list(key string) (out []uint64) {
	for _, c := range a.d.CmdArgs {
		if c.Key == key {
			for _, v := range c.Vals {
				out = append(out, sessionID(a.t, v))
			}
		}
	}
	return out
}

func (a args) has(key string) bool { return a.d.HasArg(key) }

func (a args) session() uint64 { return sessionID(a.t, a.text("s")) }

func (w *harness) run(t *testing.T, d *datadriven.TestData) string {
	a, l := args{t, d}, w.l
	var notes []string
	switch d.Cmd {
	case "start":
		for _, id := range a.list("remotes") {
			w.remotes[id] = sessionStatus{epoch: 1}
		}
		l.Start(w.now, a.num("epoch", 1), a.num("log", 1_000), a.list("remotes"))
	case "stop":
		l.Stop()
	case "wait": // time passes without a call
		w.now += a.num("ms", 0)
		return ""
	case "advance": // time passes with ticks every 100 ms, and barriers that succeed; what they do is shown, signs of life aside
		quiet := a.has("quiet")
		for end := w.now + a.num("ms", 0); w.now < end; {
			w.now += 100
			l.Tick(w.now, w.lastHeard, w.deadline, w.deadline != 0)
			for _, line := range w.take(a.has("hear"), !a.has("unanswered")) {
				if !quiet {
					notes = append(notes, fmt.Sprintf("%d: %s", w.now, line))
				}
			}
		}
		return strings.Join(append(notes, ""), "\n")
	case "tick":
		w.now += a.num("ms", 100)
		l.Tick(w.now, w.lastHeard, w.deadline, w.deadline != 0)
	case "log":
		return fmt.Sprintf("log time %d, runs: %v\n", l.LogTime(w.now), l.LogTimeRuns())
	case "deadline":
		w.deadline = a.num("at", 0)
		return ""
	case "hear":
		w.heard[a.num("conn", 1)] = w.now
		return ""
	case "attach":
		w.table[a.session()] = sessionStatus{epoch: a.num("epoch", 1), description: a.text("text")}
		conn := a.num("conn", 1)
		w.heard[conn] = max(w.heard[conn], w.now)
		l.Attached(w.now, conn, a.session(), a.num("epoch", 1), a.num("timeout", 10_000), a.text("text"))
	case "attach-many":
		for i := range a.num("n", 1) {
			l.Attached(w.now, a.num("conn", 1), protocol.MakeSessionID(0, 1, 1_000+i), 1, 10_000, "")
		}
	case "detached":
		e := w.table[a.session()]
		e.state = stateDetached
		w.table[a.session()] = e
		l.Detached(w.now, a.session(), a.num("epoch", 1), e.description)
	case "ended":
		delete(w.table, a.session())
		l.Ended(w.now, a.session(), &protocol.Ending{Reason: protocol.EndExpired, Silent: a.num("silent", 0)})
	case "close":
		w.closed[a.num("conn", 1)] = true
		if !a.has("untold") {
			l.ConnClosed(w.now, a.num("conn", 1), w.heard[a.num("conn", 1)], protocol.LinkClosed)
		}
	case "transfer":
		l.Transfer(w.now, w.lastHeard)
	case "ping":
		l.Ping(w.now, a.num("conn", 1), a.num("ping", 1))
	case "barrier":
		l.BarrierDone(w.now, a.num("n", l.barrier.number), !a.has("fails"), w)
	case "frozen":
		l.BucketsFrozen(w.now, uint32(a.num("first", 1)), uint32(a.num("count", 1)))
	case "active":
		l.BucketsActive(w.now)
	case "left":
		l.BucketsLeft(w.now, uint32(a.num("first", 1)), uint32(a.num("count", 1)))
	case "done":
		l.Done(w.now, a.num("id", 1), !a.has("refused"))
	case "remote-held":
		for _, id := range a.list("s") {
			w.remotes[id] = sessionStatus{epoch: a.num("epoch", 1), description: a.text("text")}
			w.tracks[id] = int(a.num("tracks", 0))
			l.RemoteHeld(w.now, id)
		}
	case "remote-idle":
		l.RemoteIdle(w.now, a.session())
	case "remotes":
		return w.beliefs()
	case "holdings":
		l.Holdings(w.now, a.list("s"))
	case "route":
		w.routes[uint32(a.num("bucket", 2))] = [2]uint64{a.num("shard", 2), a.num("epoch", 1)}
		l.RouteChanged(w.now)
	case "home": // the home bucket of shard 1
		w.inactive[1] = a.has("inactive")
		w.epochs[1] = a.num("epoch", 1)
		return ""
	case "session":
		w.table[a.session()] = sessionStatus{epoch: a.num("epoch", 1), description: a.text("text")}
		return ""
	case "subscribe":
		m := subscribeMsg{epoch: a.num("epoch", 1), attempt: a.num("attempt", 1), request: a.num("request", 1)}
		for _, id := range a.list("s") {
			m.sessions = append(m.sessions, subscribeEntry{id, a.num("bucket-epoch", 1), a.num("known", 0)})
		}
		l.Receive(w.now, a.num("from", 2), encode(&m), w)
	case "heartbeat":
		m := heartbeatMsg{epoch: a.num("epoch", 1), attempt: a.num("attempt", 1),
			sentAt: a.num("sent-at", 7), nextUpdate: a.num("next", 1)}
		l.Receive(w.now, a.num("from", 2), encode(&m), w)
	case "subscribe-reply":
		m := subscribeReply{
			homeEpoch: a.num("home", 1), epoch: a.num("epoch", 1), attempt: a.num("attempt", 1),
			request: a.num("request", 1),
			first:   a.num("first", 0), count: a.num("count", 1), sessions: a.entries(),
		}
		l.Receive(w.now, a.num("from", 2), encode(&m), w)
	case "heartbeat-reply":
		m := heartbeatReply{homeEpoch: a.num("home", 1), epoch: a.num("epoch", 1), attempt: a.num("attempt", 1),
			sentAt: a.num("sent-at", w.now), known: !a.has("unknown")}
		l.Receive(w.now, a.num("from", 2), encode(&m), w)
	case "notify":
		m := notifyMsg{homeEpoch: a.num("home", 1), epoch: a.num("epoch", 1), attempt: a.num("attempt", 1),
			firstUpdate: a.num("first", 1), sessions: a.entries()}
		l.Receive(w.now, a.num("from", 2), encode(&m), w)
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	return strings.Join(append(w.take(false, false), ""), "\n")
}

// beliefs lists what is believed of each remote session.
func (w *harness) beliefs() string {
	var out []string
	for id, g := range w.l.remotes.sessions {
		is := "its release is proposed"
		switch {
		case g.list == &w.l.remotes.delayed:
			is = "delayed"
		case g.list == &w.l.remotes.retry:
			is = "to be retried"
		case g.list == &w.l.remotes.ended:
			is = "ended"
		case g.subscription == nil:
		case g.list == &g.subscription.queued:
			is = fmt.Sprintf("queued, attempt %d", g.subscription.attempt)
		case g.list == &g.subscription.asked:
			is = fmt.Sprintf("asked by request %d", g.request)
		case g.list == &g.subscription.confirmed:
			is = fmt.Sprintf("confirmed, attempt %d", g.subscription.attempt)
		}
		out = append(out, fmt.Sprintf("%s %s\n", sessionName(id), is))
	}
	slices.Sort(out)
	return strings.Join(out, "")
}

// entries reads alive=(s), detached=(s), gone=(s), retry=(s), with attach= and text= for the
// living.
func (a args) entries() (out []sessionStatus) {
	for _, id := range a.list("alive") {
		out = append(out, sessionStatus{session: id, state: stateAttached, epoch: a.num("attach", 1), description: a.text("text")})
	}
	for _, id := range a.list("detached") {
		out = append(out, sessionStatus{session: id, state: stateDetached, epoch: a.num("attach", 1), description: a.text("text")})
	}
	for _, id := range a.list("ended") {
		out = append(out, sessionStatus{session: id, state: stateEnded})
	}
	for _, id := range a.list("retry") {
		out = append(out, sessionStatus{session: id, state: stateRetry})
	}
	return out
}

func (w *harness) lastHeard(conn uint64) (uint64, bool) { return w.heard[conn], !w.closed[conn] }

// take carries out nothing but barriers and signs of life, if told to, and shows the rest.
func (w *harness) take(hear, barriers bool) (out []string) {
	for {
		r := w.l.Take()
		again := false
		for _, c := range r.Cut {
			if c.Reason == "" {
				out = append(out, fmt.Sprintf("detach the sessions of connection %d", c.Conn))
			} else {
				out = append(out, fmt.Sprintf("cut connection %d: %s", c.Conn, c.Reason))
			}
		}
		for _, p := range r.Pongs {
			out = append(out, fmt.Sprintf("pong on connection %d to ping %d", p.Conn, p.Ping))
		}
		for _, c := range r.Commands {
			out = append(out, fmt.Sprintf("propose %d: %s", c.ID, w.command(c)))
		}
		for _, p := range r.Messages {
			if m, ok := parseMessage(p.Bytes).(*heartbeatMsg); ok && hear {
				k := w.l.remotes.subscriptions[p.To]
				w.l.Receive(w.now, p.To, encode(&heartbeatReply{homeEpoch: k.homeEpoch, epoch: m.epoch,
					attempt: m.attempt, sentAt: m.sentAt, known: true}), w)
				again = true
				continue
			}
			out = append(out, fmt.Sprintf("to %d: %s", p.To, formatMessage(p.Bytes)))
		}
		if r.Tick {
			out = append(out, fmt.Sprintf("tick at log time %d", w.l.LogTime(w.now)))
		}
		if r.Compare {
			out = append(out, "compare holdings")
		}
		if r.Barrier != 0 && barriers {
			w.l.BarrierDone(w.now, r.Barrier, true, w)
			again = true
		} else if r.Barrier != 0 {
			out = append(out, fmt.Sprintf("begin barrier %d", r.Barrier))
		}
		if !again {
			return out
		}
	}
}

func (w *harness) command(c Command) string {
	f := w.l.proposals.inFlight[c.ID]
	var b strings.Builder
	switch c.Kind {
	case shard.CmdDetach:
		b.WriteString("detach")
		if f.stood {
			fmt.Fprintf(&b, " stood=%d until %d", w.l.stood, w.l.stoodAt)
		}
		for _, s := range f.sessions {
			fmt.Fprintf(&b, " %s epoch %d heard %d", sessionName(s.id), s.epoch, s.at)
		}
	case shard.CmdRemoteEnded:
		b.WriteString("remote ended")
		for _, g := range f.remotes {
			b.WriteString(" " + sessionName(g.session))
		}
	case shard.CmdRemoteUpdate:
		fmt.Fprintf(&b, "remote update %s epoch %d %q", sessionName(f.update.Session),
			f.update.Epoch, f.update.Description)
		if f.update.Detached {
			b.WriteString(" detached")
		}
	}
	if b.Len() > 200 {
		return fmt.Sprintf("%.60s ... (%d sessions)", b.String(), len(f.sessions)+len(f.remotes))
	}
	return b.String()
}

// parseMessage decodes a message as Receive does.
func parseMessage(msg []byte) message {
	m := map[byte]message{
		kindSubscribe: &subscribeMsg{}, kindHeartbeat: &heartbeatMsg{}, kindSubscribeReply: &subscribeReply{},
		kindHeartbeatReply: &heartbeatReply{}, kindNotify: &notifyMsg{},
	}[msg[1]]
	if !decode(msg[2:], m) {
		panic("malformed message")
	}
	return m
}

func formatMessage(msg []byte) string {
	var b strings.Builder
	switch m := parseMessage(msg).(type) {
	case *subscribeMsg:
		fmt.Fprintf(&b, "subscribe (epoch %d attempt %d) request %d:", m.epoch, m.attempt, m.request)
		for _, e := range m.sessions {
			fmt.Fprintf(&b, " %s bucket epoch %d known %d", sessionName(e.session), e.bucketEpoch, e.known)
		}
	case *heartbeatMsg:
		fmt.Fprintf(&b, "heartbeat (epoch %d attempt %d) next update %d", m.epoch, m.attempt, m.nextUpdate)
	case *subscribeReply:
		fmt.Fprintf(&b, "subscribe reply (home epoch %d to epoch %d attempt %d) request %d [%d, %d):",
			m.homeEpoch, m.epoch, m.attempt, m.request, m.first, m.first+m.count)
		formatStatuses(&b, m.sessions)
	case *heartbeatReply:
		fmt.Fprintf(&b, "heartbeat reply (home epoch %d to epoch %d attempt %d) sent at %d known %v",
			m.homeEpoch, m.epoch, m.attempt, m.sentAt, m.known)
	case *notifyMsg:
		fmt.Fprintf(&b, "notify (home epoch %d to epoch %d attempt %d) from %d:",
			m.homeEpoch, m.epoch, m.attempt, m.firstUpdate)
		formatStatuses(&b, m.sessions)
	}
	if b.Len() > 300 {
		return fmt.Sprintf("%.100s ... (%d bytes)", b.String(), len(msg))
	}
	return b.String()
}

func formatStatuses(b *strings.Builder, list []sessionStatus) {
	words := []string{"", "alive", "ended", "retry", "detached"}
	for _, e := range list {
		fmt.Fprintf(b, " %s %s", sessionName(e.session), words[e.state])
		if e.alive() {
			fmt.Fprintf(b, " epoch %d %q", e.epoch, e.description)
		}
	}
	if len(list) == 0 {
		b.WriteString(" all as known")
	}
}
