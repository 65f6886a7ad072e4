package core

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/signalbox-dev/signalbox/protocol"
)

func init() { flag.Var(flag.Lookup("rewrite").Value, "update", "rewrite the scripts") }

// TestScripts runs testdata. Each file is a rule of a client, told as a story: what happens, one
// thing a line, and what the engine does then.
//
//	open                          wants a connection, and a session behind its hello
//	connect 1                     instance 1 has answered the hello; at=ADDRESS, if it is another's
//	refuse 1 FORBIDDEN            it has refused the client
//	fail 1                        it cannot be reached
//	1: map 1@1,2 2@2              instance 1 answers with a map: shard 1 has replicas at instances 1
//	                              and 2, 1 leads it ...
//	1: started shard=1            ... and with the start of the session
//	ready 1@1,2 2@2               these four
//	acquire a jobs wait=5s        call a acquires the semaphore jobs
//	release a                     its lease is released, by call a' where it has to be named
//	give up a                     the context of call a ends
//	at 2s                         time passes
//	1: acquired 1 token=7         instance 1 answers the request with number 1
//	1: result 1 acquired token=7  the event behind "accepted"
//	1: WRONG_SHARD 1 shard=2 leader=2 term=3 version=2      a refusal, and what it says
//	1: leader shard=1 leader=2 term=3                       an announcement
//	1: newer version=2                                      the same of a map
//	1: lost                       the connection ends
//	look                          the session's state
//
//	1> acquire 1 low=1 jobs       the frame goes to instance 1: the request with number 1
//	a: token 7                    call a returns
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var s *script
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "story" {
				s = newScript()
			}
			var out strings.Builder
			for _, line := range strings.Split(d.Input, "\n") {
				if line = strings.TrimSpace(line); line == "" {
					continue
				}
				fmt.Fprintln(&out, line)
				s.step(t, d, line)
				for _, l := range s.came() {
					fmt.Fprintln(&out, "  "+l)
				}
			}
			return out.String()
		})
	})
}

// script is an engine with one session, and what happens around it.
type script struct {
	e      *Engine
	s      *Session
	start  *Start
	now    time.Duration
	dialed []*Conn
	conns  map[string]*Conn
	order  []string
	ids    map[string]uint64 // conn/seq -> id of the request that was sent last
	calls  map[string]*scriptCall
	out    []string
}

// scriptCall is a call by its name.
type scriptCall struct {
	s       *script
	name    string
	acquire Acquire
	release Release
	lease   Lease
}

// epoch is the time of a story's beginning.
const epoch = time.Hour

func newScript() *script {
	return &script{
		e: New([]string{"endpoint"}, 1), now: epoch, conns: map[string]*Conn{}, ids: map[string]uint64{},
		calls: map[string]*scriptCall{},
	}
}

// Done implements Waiter.
func (c *scriptCall) Done() {}

// words are the fields of a line; those of the form name=value are options.
type words struct {
	list    []string
	options map[string]string
}

func wordsOf(line string) (w words) {
	w.options = map[string]string{}
	for _, f := range strings.Fields(line) {
		if k, v, ok := strings.Cut(f, "="); ok {
			w.options[k] = v
		} else {
			w.list = append(w.list, f)
		}
	}
	return w
}

func (w words) number(t *testing.T, name string, otherwise uint64) uint64 {
	v, ok := w.options[name]
	if !ok {
		return otherwise
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (w words) millis(t *testing.T, name string, otherwise uint64) uint64 {
	v, ok := w.options[name]
	if !ok {
		return otherwise
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		t.Fatal(err)
	}
	return uint64(d.Milliseconds())
}

func (s *script) step(t *testing.T, d *datadriven.TestData, line string) {
	if from, what, ok := strings.Cut(line, ": "); ok {
		c := s.conns[from]
		if c == nil {
			d.Fatalf(t, "no connection %s", from)
		}
		s.server(t, d, from, c, wordsOf(what))
		return
	}
	w := wordsOf(line)
	switch w.list[0] {
	case "open":
		s.s = &Session{Path: "/n", Timeout: 10 * time.Second}
		s.start = &Start{Request: Request{Waiter: nobody{}}}
		s.e.Open(s.now)
		s.e.StartSession(s.now, s.s, [protocol.KeyLen]byte{}, s.start)
	case "refuse":
		s.e.Lost(s.now, s.attempt(t, w.list[1]), &protocol.Error{Status: statusNamed(t, w.list[2]), Message: "said so"})
	case "fail":
		s.e.Lost(s.now, s.attempt(t, w.list[1]), errors.New("no route to host"))
	case "connect":
		name := w.list[1]
		at, ok := w.options["at"]
		if !ok {
			at = "i" + name
		}
		c := s.attempt(t, strings.TrimPrefix(at, "i"))
		instance, err := strconv.ParseUint(name, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		s.frames(name, c.TakeOut(nil))
		s.conns[name], s.order = c, append(s.order, name)
		if !slices.Contains(c.Addresses, at) {
			at = c.Addresses[0]
		}
		s.e.Connected(s.now, c, at, &protocol.HelloReply{
			Version: uint32(w.number(t, "protocol", uint64(protocol.Version))), Cluster: cmp.Or(w.options["cluster"], "c"),
			Instance: instance, Window: uint32(w.number(t, "window", 8)), MapVersion: w.number(t, "version", 0),
		})
	case "ready":
		shards, options := "1@1", ""
		if len(w.list) > 1 {
			shards = strings.Join(w.list[1:], " ")
		}
		if term, ok := w.options["term"]; ok {
			shards += " term=" + term
		}
		if window, ok := w.options["window"]; ok {
			options = " window=" + window
		}
		for _, l := range []string{"open", "connect 1" + options, "1: map " + shards, "1: started shard=1"} {
			s.step(t, d, l)
			s.came()
		}
	case "acquire":
		c := &scriptCall{s: s, name: w.list[1]}
		s.calls[c.name] = c
		a := &c.acquire
		a.Waiter, a.Lease = c, &c.lease
		a.Msg = protocol.Acquire{
			Name: []byte(w.list[2]), Count: w.number(t, "count", 1), Timeout: w.millis(t, "wait", protocol.Forever),
		}
		switch w.options["turn"] {
		case "free":
			a.Turn = Free
		case "now":
			a.Turn, a.Msg.Timeout = Now, 0
		}
		s.e.Acquire(s.now, s.s, w.list[2], a)
	case "release":
		c := s.calls[w.list[1]]
		c.release.Waiter = c
		s.e.Release(s.now, &c.lease, &c.release)
	case "give":
		c := s.calls[w.list[2]]
		r := &c.acquire.Request
		if c.release.session != nil {
			r = &c.release.Request
		}
		s.e.GiveUp(s.now, r, errors.New("context ended"))
	case "at":
		at, err := time.ParseDuration(w.list[1])
		if err != nil {
			t.Fatal(err)
		}
		s.now = epoch + at
		s.e.Tick(s.now)
	case "look":
		state := "DETACHED"
		if s.s.machine.State() != 0 {
			state = s.s.machine.State().String()
		}
		held := "not held"
		if s.s.Held(s.now) {
			held = fmt.Sprintf("held until %s", s.s.machine.Deadline()-epoch)
		}
		s.out = append(s.out, state+", "+held)
		for _, name := range sortedNames(s.calls) {
			if c := s.calls[name]; c.lease.Token != 0 {
				s.out = append(s.out, fmt.Sprintf("lease of %s: %s", name, overText(c.lease.Over())))
			}
		}
	default:
		d.Fatalf(t, "unknown input %q", line)
	}
}

func overText(err error) string {
	if err == nil {
		return "held"
	}
	return err.Error()
}

func sortedNames(m map[string]*scriptCall) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// attempt takes the connection that is being made to an instance, or to the endpoint.
func (s *script) attempt(t *testing.T, instance string) *Conn {
	for i, c := range s.dialed {
		if slices.Contains(c.Addresses, "i"+instance) || slices.Contains(c.Addresses, "endpoint") {
			s.dialed = slices.Delete(s.dialed, i, i+1)
			return c
		}
	}
	t.Fatalf("no connection to %s is being made", instance)
	return nil
}

// server is something that a server sends.
func (s *script) server(t *testing.T, d *datadriven.TestData, from string, c *Conn, w words) {
	reply := func(m protocol.Message, status protocol.Status) {
		id, ok := s.ids[from+"/"+w.list[1]]
		if !ok {
			d.Fatalf(t, "no request %s was sent to %s", w.list[1], from)
		}
		kind := protocol.KindAcquire
		if _, release := m.(*protocol.ReleaseReply); release {
			kind = protocol.KindRelease
		}
		s.receive(t, c, protocol.AppendFrame(nil, kind|protocol.KindReply, id, uint64(status), m))
	}
	event := func(kind protocol.Kind, m protocol.Message) {
		s.receive(t, c, protocol.AppendFrame(nil, kind, 0, 1, m))
	}
	token := w.number(t, "token", 0)
	states := map[string]protocol.AcquireState{
		"acquired": protocol.Acquired, "accepted": protocol.Accepted, "not-acquired": protocol.NotAcquired,
	}
	switch what := w.list[0]; what {
	case "map":
		m := &protocol.MapReply{Version: w.number(t, "version", 1), Tiers: []protocol.MapTier{{Buckets: 8}}}
		for _, f := range w.list[1:] {
			shard, instances, _ := strings.Cut(f, "@")
			id, _ := strconv.ParseUint(shard, 10, 64)
			var replicas []uint64
			for instance := range strings.SplitSeq(instances, ",") {
				at, _ := strconv.ParseUint(instance, 10, 64)
				replicas = append(replicas, at)
				if !slices.ContainsFunc(m.Instances, func(i protocol.MapInstance) bool { return i.ID == at }) {
					m.Instances = append(m.Instances, protocol.MapInstance{ID: at, Address: "i" + instance})
				}
			}
			m.Shards = append(m.Shards, protocol.MapShard{ID: id, Master: replicas[0], Replicas: replicas, Term: w.number(t, "term", 1)})
			m.Tiers[0].Runs = append(m.Tiers[0].Runs, protocol.MapRun{Count: 8 / uint32(len(w.list)-1), Shard: id})
		}
		s.receive(t, c, protocol.AppendFrame(nil, protocol.KindMap|protocol.KindReply, s.ids[from+"/map"], 0, m))
	case "started":
		m := &protocol.SessionReply{
			Session: 1, Epoch: 1, Shard: w.number(t, "shard", 1), Timeout: w.millis(t, "timeout", 10_000),
			Grace: w.millis(t, "grace", 10_000), Node: 7, Ticket: []byte("ticket"),
		}
		s.receive(t, c, protocol.AppendFrame(nil, protocol.KindSessionStart|protocol.KindReply, s.ids[from+"/start"], 0, m))
	case "acquired", "accepted", "not-acquired":
		reply(&protocol.AcquireReply{State: states[what], OrderID: token}, protocol.StatusOK)
	case "released":
		reply(&protocol.ReleaseReply{Released: true}, protocol.StatusOK)
	case "result":
		n, err := strconv.ParseUint(w.list[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		m := &protocol.AcquireResult{Session: 1, Seq: n, State: states[w.list[2]], OrderID: token}
		if m.State == 0 {
			m.Status, m.Message = statusNamed(t, w.list[2]), "said so"
		}
		event(protocol.KindAcquireResult, m)
	case "lease-lost":
		event(protocol.KindLeaseLost, &protocol.LeaseLost{Session: 1, Name: []byte(w.list[1]), OrderID: token, Message: "taken by force"})
	case "session-ended":
		event(protocol.KindSessionEnded, &protocol.SessionEnded{Session: 1, Reason: protocol.EndExpired})
	case "pong":
		n := c.keepAlive.lastPing
		if at, ok := w.options["ping"]; ok {
			sent, err := time.ParseDuration(at)
			if err != nil {
				t.Fatal(err)
			}
			n = uint64(epoch+sent-c.keepAlive.began) + 1
		}
		s.receive(t, c, protocol.AppendFrame(nil, protocol.KindPong, n, w.number(t, "shard", 0), nil))
	case "leader":
		event(protocol.KindMapChanged, &protocol.MapChanged{
			Version: w.number(t, "version", 1), Shard: w.number(t, "shard", 1), Master: w.number(t, "leader", 0),
			Term: w.number(t, "term", 0),
		})
	case "newer":
		event(protocol.KindMapChanged, &protocol.MapChanged{Version: w.number(t, "version", 0)})
	case "event":
		s.receive(t, c, protocol.AppendFrame(nil, protocol.Kind(0x7f), 0, 0, nil))
	case "goodbye":
		event(protocol.KindGoodbye, &protocol.Goodbye{Status: protocol.StatusUnavailable, Message: "server stops"})
	case "lost":
		delete(s.conns, from)
		s.e.Lost(s.now, c, errors.New("reset by peer"))
	default:
		reply(&protocol.Failure{
			Message: "said so", Shard: w.number(t, "shard", 0), Master: w.number(t, "leader", 0), Term: w.number(t, "term", 0),
			MapVersion: w.number(t, "version", 0),
		}, statusNamed(t, what))
	}
}

func statusNamed(t *testing.T, name string) protocol.Status {
	for s := range protocol.Status(64) {
		if s.String() == name {
			return s
		}
	}
	t.Fatalf("no status %s", name)
	return 0
}

func (s *script) receive(t *testing.T, c *Conn, b []byte) {
	frame, _, err := protocol.SplitFrame(b, protocol.MaxFrameLen)
	if err != nil {
		t.Fatal(err)
	}
	h, err := protocol.ParseFrame(frame)
	if err != nil {
		t.Fatal(err)
	}
	s.e.Received(s.now, c, []protocol.Header{h})
}

// came is what the engine asks for since the last time.
func (s *script) came() (lines []string) {
	var r Ready
	s.e.Take(&r)
	for _, c := range r.Dial {
		s.dialed = append(s.dialed, c)
		s.out = append(s.out, "dial "+strings.Join(c.Addresses, " "))
	}
	for _, name := range s.order {
		if c := s.conns[name]; c != nil && slices.Contains(r.Flush, c) {
			s.frames(name, c.TakeOut(nil))
		}
	}
	for _, c := range r.Close {
		s.out = append(s.out, fmt.Sprintf("close %d: %v", c.instance, c.Err))
	}
	for _, x := range r.Done {
		c, ok := x.Waiter.(*scriptCall)
		switch {
		case !ok:
		case x.Err != nil:
			s.out = append(s.out, fmt.Sprintf("%s: %v%s", c.name, x.Err, resultText(x.Result)))
		case x == &c.release.Request:
			s.out = append(s.out, c.name+": released")
		default:
			s.out = append(s.out, fmt.Sprintf("%s: token %d", c.name, c.lease.Token))
		}
	}
	for _, v := range r.Event {
		switch v.Kind {
		case SessionChanged:
			s.out = append(s.out, "session is "+v.Session.machine.State().String())
		case LeaseEnded:
			s.out = append(s.out, fmt.Sprintf("lease %d: %v", v.Lease.Token, v.Err))
		case ReleaseRefused:
			s.out = append(s.out, fmt.Sprintf("refused in the background: %v", v.Err))
		}
	}
	lines, s.out = s.out, nil
	return lines
}

func resultText(r Result) string {
	switch {
	case r.Unknown:
		return " (outcome unknown)"
	case r.InBackground:
		return " (goes on in the background)"
	}
	return ""
}

// frames shows what goes to an instance, and notes the ids of the requests.
func (s *script) frames(to string, b []byte) {
	for len(b) > 0 {
		frame, n, _ := protocol.SplitFrame(b, protocol.MaxFrameLen)
		b = b[n:]
		h, err := protocol.ParseFrame(frame)
		if err != nil {
			panic(err)
		}
		text := ""
		switch h.Kind {
		case protocol.KindMap:
			text, s.ids[to+"/map"] = "map", h.ID
		case protocol.KindSessionStart:
			text, s.ids[to+"/start"] = "session start", h.ID
		case protocol.KindPresentTicket:
			text, s.ids[to+"/ticket"] = "ticket", h.ID
		case protocol.KindPing:
			text = "ping"
		case protocol.KindAcquire:
			var m protocol.Acquire
			_ = m.DecodeBody(h.Body)
			text = fmt.Sprintf("acquire %d low=%d %s", m.Seq, m.Low, m.Name)
			s.ids[fmt.Sprintf("%s/%d", to, m.Seq)] = h.ID
		case protocol.KindRelease:
			var m protocol.Release
			_ = m.DecodeBody(h.Body)
			text = fmt.Sprintf("release %d low=%d %s", m.Seq, m.Low, m.Name)
			s.ids[fmt.Sprintf("%s/%d", to, m.Seq)] = h.ID
		}
		s.out = append(s.out, to+"> "+text)
	}
}
