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
//	acquire a jobs wait=5s        call a acquires the semaphore jobs; priority=8, slots=g0,g1: its options
//	release a                     its lease is released, by call a' where it has to be named
//	give up a                     the context of call a ends
//	at 2s                         time passes
//	late 2s                       the same, and the timers are late
//	1: acquired 1 token=7         instance 1 answers the request with number 1; slots=g0,g1 of the grant
//	1: result 1 acquired token=7  the event behind "accepted"
//	1: WRONG_SHARD 1 shard=2 leader=2 term=3 version=2      a refusal, and what it says
//	1: leader shard=1 leader=2 term=3                       an announcement
//	1: newer version=2                                      the same of a map
//	1: lost                       the connection ends
//	1: FORBIDDEN attach           refuses an attach, a stop, a start, a ticket
//	1: attached epoch=2           answers them, as 1: stopped does
//	change a count=1 data=x       call a changes its lease; keep=g1: the slots that stay
//	create a jobs                 call a creates the semaphore; 1: ok 1 answers it
//	ask a shard=2                 call a asks an instance, or the leader of a shard
//	close                         the holder closes the session
//	wall ahead=8s                 the time of day has run ahead of the clock
//	watch a jobs*                 consumer a watches a prefix, or a name; follow a p: a process
//	take a                        a takes what there is; unwatch a: it is done
//	look                          the session's state
//	notice                        from here on the engine has notices
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
	ids    map[string]sentRequest // conn/seq, or conn/what -> the request that was sent last
	calls  map[string]*scriptCall
	out    []string

	watches map[string]*scriptWatch
}

// sentRequest is what an answer needs.
type sentRequest struct {
	kind protocol.Kind
	id   uint64
}

// scriptCall is a call by its name.
type scriptCall struct {
	s       *script
	name    string
	acquire Acquire
	release Release
	change  Change
	close   Close
	call    Call
	wait    MapWait
	lease   Lease
	last    *Request // that it made last
}

// epoch is the time of a story's beginning.
const epoch = time.Hour

func newScript() *script {
	return &script{
		e: New([]string{"endpoint"}, 1), now: epoch, conns: map[string]*Conn{}, ids: map[string]sentRequest{},
		calls: map[string]*scriptCall{}, watches: map[string]*scriptWatch{},
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

// names reads a list with commas.
func (w words) names(key string) []string {
	if w.options[key] == "" {
		return nil
	}
	return strings.Split(w.options[key], ",")
}

// grant is what a grant says of slots.
func (w words) grant() *protocol.Grant {
	if names := w.names("slots"); names != nil {
		return &protocol.Grant{Slots: names}
	}
	return nil
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
		s.s = &Session{Path: "/n", Timeout: time.Duration(w.millis(t, "timeout", 10_000)) * time.Millisecond}
		c := &scriptCall{s: s, name: "start"}
		s.calls["start"] = c
		s.start = &Start{Request: Request{Waiter: c}}
		s.start.Create[0], s.start.Again[0] = 1, 2
		c.last = &s.start.Request
		s.e.Open(s.now)
		s.e.StartSession(s.now, s.s, s.start)
	case "restore": // epoch=N, of the session 1, which another process has started
		s.s = &Session{ID: 1, Node: 7, Path: "/n", Timeout: 10 * time.Second, Nonce: w.number(t, "nonce", 1)}
		c := &scriptCall{s: s, name: "restore"}
		s.calls["restore"] = c
		x := &Restore{Request: Request{Waiter: c}, Epoch: w.number(t, "epoch", 100), First: 1000}
		c.last = &x.Request
		s.e.RestoreSession(s.now, s.s, x)
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
			Features: w.number(t, "features", protocol.FeatureQueues),
		})
	case "ready":
		shards, options := "1@1", ""
		if len(w.list) > 1 {
			shards = strings.Join(w.list[1:], " ")
		}
		if term, ok := w.options["term"]; ok {
			shards += " term=" + term
		}
		for _, key := range []string{"window", "features"} {
			if value, ok := w.options[key]; ok {
				options += " " + key + "=" + value
			}
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
		if slots, level := w.names("slots"), w.number(t, "priority", 0); slots != nil || level != 0 {
			a.Msg.Options = &protocol.AcquireOptions{Priority: uint8(level), Names: slots}
		}
		switch w.options["turn"] {
		case "free":
			a.Turn = Free
		case "now":
			a.Turn, a.Msg.Timeout = Now, 0
		}
		c.last = &a.Request
		s.e.Acquire(s.now, s.s, w.list[2], a)
	case "release":
		c := s.calls[w.list[1]]
		c.release.Waiter, c.last = c, &c.release.Request
		s.e.Release(s.now, &c.lease, &c.release)
	case "change":
		c := s.calls[w.list[1]]
		c.change = Change{Count: w.number(t, "count", 0), Keep: w.names("keep")}
		if data, ok := w.options["data"]; ok {
			c.change.Data, c.change.SetData = []byte(data), true
		}
		c.change.Waiter, c.last = c, &c.change.Request
		s.e.Change(s.now, &c.lease, &c.change)
	case "create":
		c := &scriptCall{s: s, name: w.list[1]}
		s.calls[c.name] = c
		m := &protocol.Create{Name: []byte(w.list[2]), Limit: 1}
		c.call = Call{
			Kind: protocol.KindCreate, Msg: m, Head: &m.Head, Reply: &protocol.Empty{}, Session: s.s,
			To: Target{Of: AtBucket, Bucket: protocol.Bucket(7, m.Name, 8)},
		}
		c.call.Waiter, c.last = c, &c.call.Request
		s.e.Call(s.now, &c.call)
	case "ask": // a question to any instance, or to a shard
		c := &scriptCall{s: s, name: w.list[1]}
		s.calls[c.name] = c
		c.call = Call{Kind: protocol.KindNodeDescribe, Msg: &protocol.NodeDescribe{Path: "/n"}, Reply: &protocol.NodeInfo{}}
		if shard := w.number(t, "shard", 0); shard != 0 {
			c.call.To = Target{Of: AtShard, Shard: shard}
		}
		c.call.Waiter, c.last = c, &c.call.Request
		s.e.Call(s.now, &c.call)
	case "close":
		c := &scriptCall{s: s, name: "close"}
		s.calls["close"] = c
		c.close.Waiter, c.last = c, &c.close.Request
		s.e.CloseSession(s.now, s.s, ErrSessionClosed, &c.close)
	case "wall": // ahead=DURATION, of the engine's clock, since the beginning
		s.e.Clocks(s.now, s.now+epoch+time.Duration(w.millis(t, "ahead", 0))*time.Millisecond)
	case "give":
		s.e.GiveUp(s.now, s.calls[w.list[2]].last, errors.New("context ended"))
	case "at", "late":
		at, err := time.ParseDuration(w.list[1])
		if err != nil {
			t.Fatal(err)
		}
		if s.now = epoch + at; w.list[0] == "at" {
			s.e.Tick(s.now)
		}
	case "notice":
		s.e.Noticing = true
	case "look":
		state := "DETACHED"
		if s.s.machine.State() != 0 {
			state = s.s.machine.State().String()
		}
		held := "not held"
		if s.e.Held(s.now, s.s) {
			held = fmt.Sprintf("held until %s", s.s.machine.Deadline()-epoch)
		}
		s.out = append(s.out, state+", "+held)
		for _, name := range sortedNames(s.calls) {
			if c := s.calls[name]; c.lease.Token != 0 {
				s.out = append(s.out, fmt.Sprintf("lease of %s: %s", name, overText(c.lease.Over(), held)))
			}
		}
	default:
		if !s.watchStep(t, w) {
			d.Fatalf(t, "unknown input %q", line)
		}
	}
}

func overText(err error, session string) string {
	switch {
	case err != nil:
		return err.Error()
	case session == "not held":
		return "not to be relied on"
	}
	return "held"
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
	for _, address := range []string{"i" + instance, "endpoint"} {
		for i, c := range s.dialed {
			if slices.Contains(c.Addresses, address) {
				s.dialed = slices.Delete(s.dialed, i, i+1)
				return c
			}
		}
	}
	t.Fatalf("no connection to %s is being made", instance)
	return nil
}

// server is something that a server sends.
func (s *script) server(t *testing.T, d *datadriven.TestData, from string, c *Conn, w words) {
	reply := func(m protocol.Message, status protocol.Status) {
		to, ok := s.ids[from+"/"+w.list[1]]
		if !ok {
			d.Fatalf(t, "no request %s was sent to %s", w.list[1], from)
		}
		s.receive(t, c, protocol.AppendFrame(nil, to.kind|protocol.KindReply, to.id, uint64(status), m))
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
		w.list[1] = "map"
		reply(m, protocol.StatusOK)
	case "described":
		w.list = append(w.list, "describe")
		reply(&protocol.NodeInfo{ID: 7, Config: protocol.NodeConfig{GracePeriod: w.millis(t, "grace", 10_000)}}, protocol.StatusOK)
	case "ok":
		reply(&protocol.Empty{}, protocol.StatusOK)
	case "stopped":
		w.list = append(w.list, "stop")
		reply(&protocol.Empty{}, protocol.StatusOK)
	case "started", "attached":
		m := &protocol.SessionReply{
			Session: 1, Epoch: w.number(t, "epoch", 1), Shard: w.number(t, "shard", 1), Timeout: w.millis(t, "timeout", 10_000),
			Grace: w.millis(t, "grace", 10_000), Node: 7, Ticket: []byte("ticket"),
		}
		w.list = append(w.list, map[string]string{"started": "start", "attached": "attach"}[what])
		reply(m, protocol.StatusOK)
	case "acquired", "accepted", "not-acquired":
		reply(&protocol.AcquireReply{State: states[what], OrderID: token, Grant: w.grant()}, protocol.StatusOK)
	case "released":
		reply(&protocol.ReleaseReply{Released: true}, protocol.StatusOK)
	case "result":
		n, err := strconv.ParseUint(w.list[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		m := &protocol.AcquireResult{Session: 1, Seq: n, State: states[w.list[2]], OrderID: token, Grant: w.grant()}
		if m.State == 0 {
			m.Status, m.Message = statusNamed(t, w.list[2]), "said so"
		}
		event(protocol.KindAcquireResult, m)
	case "lease-lost":
		event(protocol.KindLeaseLost, &protocol.LeaseLost{Session: 1, Name: []byte(w.list[1]), OrderID: token, Message: "taken by force"})
	case "session-ended":
		m := &protocol.SessionEnded{Session: 1, Reason: protocol.EndExpired}
		if w.options["reason"] == "stopped" {
			m.Reason = protocol.EndStopped
		}
		event(protocol.KindSessionEnded, m)
	case "detached":
		event(protocol.KindDetached, &protocol.Detached{Session: 1, Epoch: w.number(t, "epoch", 1)})
	case "taken-over":
		event(protocol.KindTakenOver, &protocol.TakenOver{Session: 1, Epoch: w.number(t, "epoch", 1)})
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
		if s.watchServer(t, from, c, w) {
			break
		}
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
	for i := range frame { // it is the reader's again, which reads into it
		frame[i] = 0xff
	}
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
	for _, n := range r.Notice {
		s.out = append(s.out, "notice: "+noticeText(n))
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
		case x == &c.change.Request:
			s.out = append(s.out, fmt.Sprintf("%s: changed, count %d, data %q", c.name, c.lease.count, c.lease.data))
		case x == &c.wait.Request:
			s.out = append(s.out, c.name+": goes on")
		case x == &c.call.Request:
			s.out = append(s.out, c.name+": OK")
		case x == &c.close.Request:
			s.out = append(s.out, "close: closed")
		case c.name == "start":
			s.out = append(s.out, fmt.Sprintf("start: session %d", s.s.ID))
		default:
			text := fmt.Sprintf("%s: token %d", c.name, c.lease.Token)
			if len(c.lease.Slots) > 0 {
				text += fmt.Sprintf(", slots %v", c.lease.Slots)
			}
			s.out = append(s.out, text)
		}
	}
	for _, p := range r.Process {
		if p.Round != nil {
			s.out = append(s.out, fmt.Sprintf("round %d of %s", p.Round.Epoch, p.Round.Name))
		} else {
			s.out = append(s.out, fmt.Sprintf("message of %s", p.Message.Name))
		}
	}
	for _, w := range r.Wake {
		w.Done()
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
	case r.Unknown && r.InBackground:
		return " (outcome unknown, goes on in the background)"
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
		text, name := "", ""
		switch h.Kind {
		case protocol.KindMap:
			text, name = "map", "map"
		case protocol.KindNodeDescribe:
			text, name = "describe node", "describe"
		case protocol.KindSessionStart:
			var m protocol.SessionStart
			_ = m.DecodeBody(h.Body)
			text, name = fmt.Sprintf("session start %d", m.CreateID[0]), "start"
			if m.Path == "" {
				text += fmt.Sprintf(" node=%d timeout=%dms", m.Node, m.Timeout)
			}
		case protocol.KindSessionAttach:
			var m protocol.SessionAttach
			_ = m.DecodeBody(h.Body)
			text, name = fmt.Sprintf("attach epoch=%d", m.Epoch), "attach"
			if m.Nonce != 0 {
				text += fmt.Sprintf(" nonce=%d", m.Nonce)
			}
		case protocol.KindSessionStop:
			var m protocol.SessionStop
			_ = m.DecodeBody(h.Body)
			text, name = fmt.Sprintf("stop epoch=%d", m.Epoch), "stop"
		case protocol.KindPresentTicket:
			var m protocol.PresentTicket
			_ = m.DecodeBody(h.Body)
			text, name = string(m.Ticket), "ticket"
		case protocol.KindPing:
			text = "ping"
		case protocol.KindAcquire:
			var m protocol.Acquire
			_ = m.DecodeBody(h.Body)
			text, name = fmt.Sprintf("acquire %d low=%d %s", m.Seq, m.Low, m.Name), fmt.Sprint(m.Seq)
			if m.Count != 1 || len(m.Data) > 0 {
				text += fmt.Sprintf(" count=%d data=%q", m.Count, m.Data)
			}
			if m.Timeout != protocol.Forever {
				text += fmt.Sprintf(" wait=%dms", m.Timeout)
			}
			if o := m.Options; o != nil {
				text += fmt.Sprintf(" priority=%d slots=%v", o.Priority, o.Names)
			}
		case protocol.KindCreate:
			var m protocol.Create
			_ = m.DecodeBody(h.Body)
			text, name = fmt.Sprintf("create %d low=%d %s", m.Seq, m.Low, m.Name), fmt.Sprint(m.Seq)
		case protocol.KindRelease:
			var m protocol.Release
			_ = m.DecodeBody(h.Body)
			text, name = fmt.Sprintf("release %d low=%d %s", m.Seq, m.Low, m.Name), fmt.Sprint(m.Seq)
		default:
			text, name = watchFrame(&h)
		}
		s.ids[to+"/"+name] = sentRequest{h.Kind, h.ID}
		s.out = append(s.out, to+"> "+text)
	}
}
