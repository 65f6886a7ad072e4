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
//	ready 1@1,2 2@2               these four; window=1, frame=60: the server's limits
//	another                       a second session, of which look tells too; session=2 in its answers
//	acquire a jobs wait=5s        call a acquires the semaphore jobs; priority=8, slots=g0,g1, hold=9s: its options;
//	                              preempt=ignored: a gateway's
//	release a                     its lease is released, by call a' where it has to be named
//	give up a                     the context of call a ends
//	at 2s                         time passes
//	late 2s                       the same, and the timers are late
//	1: acquired 1 token=7         instance 1 answers the request with number 1; slots=g0,g1 of the grant,
//	                              now=50 until=90 preemption=9: milliseconds of its bucket's time
//	1: BOUND 1                    refuses it because its hold would have a bound
//	1: result 1 acquired token=7  the event behind "queued"
//	1: WRONG_SHARD 1 shard=2 leader=2 term=3 version=2      a refusal, and what it says
//	1: leader shard=1 leader=2 term=3                       an announcement
//	1: newer version=2                                      the same of a map
//	1: lost                       the connection ends
//	1: FORBIDDEN attach           refuses an attach, a stop, a start, a ticket
//	1: attached epoch=2           answers them, as 1: stopped does
//	change a count=1 data=x       call a changes its lease; keep=g1: the slots that stay; hold=9s: more time
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
				if s.err != nil {
					d.Fatalf(t, "after %q: %v", line, s.err)
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
	other  *Session // the second one; nil: there is none
	start  *Start
	now    time.Duration
	dialed []*Conn
	conns  map[string]*Conn
	order  []string
	ids    map[string]sentRequest // conn/seq, or conn/what -> the request that was sent last
	calls  map[string]*scriptCall
	out    []string

	account account
	err     error // what the account has found first

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

// grant is what a grant says of slots, wants and bounds.
func (w words) grant(t *testing.T) *protocol.Grant {
	g := &protocol.Grant{Slots: w.names("slots"), Now: w.number(t, "now", 0), Until: w.number(t, "until", 0), Preemption: w.number(t, "preemption", 0)}
	if len(g.Slots) == 0 && g.Preemption+g.Now == 0 {
		return nil
	}
	return g
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
		s.account.began(c.last, s.s)
		s.e.Open(s.now)
		s.e.StartSession(s.now, s.s, s.start)
	case "another":
		s.other = &Session{Path: "/n", Timeout: 10 * time.Second}
		x := &Start{Request: Request{Waiter: &scriptCall{s: s, name: "another"}}}
		x.Create[0], x.Again[0] = 3, 4
		s.account.began(&x.Request, s.other)
		s.e.StartSession(s.now, s.other, x)
	case "restore": // epoch=N, of the session 1, which another process has started
		s.s = &Session{ID: 1, Node: 7, Path: "/n", Timeout: 10 * time.Second, Nonce: w.number(t, "nonce", 1)}
		c := &scriptCall{s: s, name: "restore"}
		s.calls["restore"] = c
		x := &Restore{Request: Request{Waiter: c}, Epoch: w.number(t, "epoch", 100), First: 1000}
		c.last = &x.Request
		s.account.began(c.last, s.s)
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
			MaxFrame: uint32(w.number(t, "frame", 0)),
		})
	case "ready":
		shards, options := "1@1", ""
		if len(w.list) > 1 {
			shards = strings.Join(w.list[1:], " ")
		}
		if term, ok := w.options["term"]; ok {
			shards += " term=" + term
		}
		for _, key := range []string{"window", "frame"} {
			if value, ok := w.options[key]; ok {
				options += " " + key + "=" + value
			}
		}
		timeout := ""
		if t, ok := w.options["timeout"]; ok {
			timeout = " timeout=" + t
		}
		for _, l := range []string{"open" + timeout, "connect 1" + options, "1: map " + shards, "1: started shard=1" + timeout} {
			s.step(t, d, l)
			s.came()
		}
	case "acquire":
		c := &scriptCall{s: s, name: w.list[1]}
		s.calls[c.name] = c
		a := &c.acquire
		a.IgnorePreemption = w.options["preempt"] == "ignored"
		a.Waiter, a.Lease = c, &c.lease
		a.Msg = protocol.Acquire{
			Name: []byte(w.list[2]), Count: w.number(t, "count", 1), Timeout: w.millis(t, "wait", protocol.Forever),
		}
		slots, level, hold := w.names("slots"), w.number(t, "priority", 0), w.millis(t, "hold", 0)
		if slots != nil || level+hold != 0 {
			a.Msg.Options = &protocol.AcquireOptions{Priority: uint8(level), Names: slots, Hold: hold}
		}
		if hold != 0 {
			a.Msg.Options.Flags = protocol.KnowsBounds
		}
		switch w.options["turn"] {
		case "free":
			a.Turn = Free
		case "now":
			a.Turn, a.Msg.Timeout = Now, 0
		}
		c.last = &a.Request
		s.account.began(c.last, nil)
		s.e.Acquire(s.now, s.s, w.list[2], a)
	case "release":
		c := s.calls[w.list[1]]
		c.release.Waiter, c.last = c, &c.release.Request
		s.account.began(c.last, nil)
		s.e.Release(s.now, &c.lease, &c.release)
	case "change":
		c := s.calls[w.list[1]]
		c.change = Change{Count: w.number(t, "count", 0), Keep: w.names("keep"), Hold: w.millis(t, "hold", 0)}
		if data, ok := w.options["data"]; ok {
			c.change.Data, c.change.SetData = []byte(data), true
		}
		c.change.Waiter, c.last = c, &c.change.Request
		s.account.began(c.last, nil)
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
		s.account.began(c.last, nil)
		s.e.Call(s.now, &c.call)
	case "ask": // a question to any instance, or to a shard
		c := &scriptCall{s: s, name: w.list[1]}
		s.calls[c.name] = c
		c.call = Call{Kind: protocol.KindNodeDescribe, Msg: &protocol.NodeDescribe{Path: "/n"}, Reply: &protocol.NodeInfo{}}
		if shard := w.number(t, "shard", 0); shard != 0 {
			c.call.To = Target{Of: AtShard, Shard: shard}
		}
		c.call.Waiter, c.last = c, &c.call.Request
		s.account.began(c.last, nil)
		s.e.Call(s.now, &c.call)
	case "close":
		c := &scriptCall{s: s, name: "close"}
		s.calls["close"] = c
		c.close.Waiter, c.last = c, &c.close.Request
		s.account.began(c.last, nil)
		s.e.CloseSession(s.now, s.s, ErrSessionClosed, &c.close)
	case "wall": // ahead=DURATION, of the engine's clock, since the beginning
		s.e.Clocks(s.now, s.now+epoch+time.Duration(w.millis(t, "ahead", 0))*time.Millisecond,
			time.Duration(w.millis(t, "asleep", 0))*time.Millisecond)
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
		held := s.look(s.s)
		if s.other != nil {
			s.look(s.other)
		}
		for _, name := range sortedNames(s.calls) {
			if c := s.calls[name]; c.lease.Token != 0 {
				if c.lease.Over() == nil && !c.lease.HeldAt(s.e, s.now) {
					held = "not held"
				}
				s.out = append(s.out, fmt.Sprintf("lease of %s: %s", name, overText(c.lease.Over(), held)))
				if in, toStop, ok := c.lease.EndsAt(s.e, s.now); ok && c.lease.over == nil {
					s.out = append(s.out, fmt.Sprintf("  ends at %s, given back at %s", s.now+in-epoch, s.now+in+toStop-epoch))
				}
				if notified, by := c.lease.Preempted(); notified {
					s.out = append(s.out, fmt.Sprintf("  preempted by %d", by))
				}
			}
		}
	default:
		if !s.watchStep(t, w) {
			d.Fatalf(t, "unknown input %q", line)
		}
	}
}

// look reports whether a session may be relied on.
func (s *script) look(of *Session) (held string) {
	state := "DETACHED"
	if of.machine.State() != 0 {
		state = of.machine.State().String()
	}
	held = "not held"
	if s.e.Held(s.now, of) {
		held = fmt.Sprintf("held until %s", of.machine.Deadline()-epoch)
	}
	s.out = append(s.out, s.whose(of.ID)+state+", "+held)
	return held
}

// whose names the second session; the first one needs no name.
func (s *script) whose(id uint64) string {
	if id > 1 {
		return fmt.Sprintf("session %d: ", id)
	}
	return ""
}
