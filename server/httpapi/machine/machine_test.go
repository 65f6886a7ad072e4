package machine

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"
)

func init() { flag.Var(flag.Lookup("rewrite").Value, "update", "rewrite the scripts") }

// began is when the stories begin.
const began = time.Hour

// grant is a lease of the tests.
type grant struct{ token, count uint64 }

func (g *grant) Token() uint64 { return g.token }
func (g *grant) Count() uint64 { return g.count }

// errRefused is the outcome of an acquire that is refused.
var errRefused = errors.New("refused")

// script is a session with a story's names for its leases.
type script struct {
	s      Session
	leases map[string]*grant
}

// TestScripts runs testdata: a time and an input on each line, ---- and what came out of each.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		x := new(script)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "new" {
				*x = script{leases: make(map[string]*grant)}
			}
			var out strings.Builder
			for line := range strings.Lines(d.Input) {
				f := strings.Fields(line)
				at, err := time.ParseDuration(f[0])
				if err != nil {
					d.Fatalf(t, "%s: %v", line, err)
				}
				fmt.Fprintf(&out, "%s: %s\n", strings.TrimSpace(line), x.step(began+at, f[1], f[2:]))
				check(t, &x.s)
			}
			return out.String()
		})
	})
}

// step is one input; the result is what follows from it.
func (x *script) step(now time.Duration, input string, args []string) string {
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	number := func(i int) uint64 {
		n, _ := strconv.ParseUint(arg(i), 10, 64)
		return n
	}
	var out []string
	switch input {
	case "started":
		x.s.Started(now, 30*time.Second)
	case "enter":
		out = append(out, fmt.Sprint(x.s.Enter()))
	case "leave":
		x.s.Leave(now, x.s.Life())
	case "leave-now":
		x.s.Leave(now, 0)
	case "leave-refused":
		x.s.LeaveRefused(now)
	case "holds": // name token
		x.leases[arg(1)] = &grant{number(1), 1}
		x.s.Holds(arg(0), Set{Ephemeral: true, Count: 1}, x.leases[arg(1)])
	case "acquire", "stream": // call name count
		step := x.s.Acquire(Call(number(0)), arg(1), Set{Ephemeral: true, Count: cmp.Or(number(2), 1)}, input == "stream")
		switch {
		case step.Refused:
			out = append(out, fmt.Sprintf("refused: it holds %d", step.Held.Count))
		case step.Lease != nil:
			out = append(out, fmt.Sprintf("confirm %d", step.Lease.Token()))
		case step.Start && step.After != 0:
			out = append(out, fmt.Sprintf("start op %d after op %d", step.Op, step.After))
		case step.Start:
			out = append(out, fmt.Sprintf("start op %d", step.Op))
		default:
			out = append(out, fmt.Sprintf("join op %d", step.Op))
		}
	case "granted": // op name token count
		x.leases[arg(2)] = &grant{number(2), cmp.Or(number(3), 1)}
		x.s.Done(Op(number(0)), arg(1), x.leases[arg(2)], nil)
	case "refused": // op name
		x.s.Done(Op(number(0)), arg(1), nil, errRefused)
		x.s.Ended(Op(number(0)), arg(1))
	case "ended": // op name
		x.s.Ended(Op(number(0)), arg(1))
	case "lost": // name token
		x.s.Lost(arg(0), x.leases[arg(1)])
	case "hung-up": // call name
		x.s.HungUp(now, Call(number(0)), arg(1))
	case "wait-over": // call name
		x.s.WaitOver(Call(number(0)), arg(1))
	case "give-up": // call name
		x.s.GiveUp(Call(number(0)), arg(1))
	case "show": // name
		if l, _ := x.s.Show(arg(0)); l != nil {
			out = append(out, fmt.Sprintf("it holds %d", l.Token()))
		}
	case "show-all":
		x.s.ShowAll()
	case "release": // name token
		switch r := x.s.Release(arg(0), number(1)); {
		case r.Op == 0:
			out = append(out, "nothing")
		case r.Lease != nil:
			out = append(out, fmt.Sprintf("op %d: release %d", r.Op, r.Lease.Token()))
		default:
			out = append(out, fmt.Sprintf("op %d: release by name, after op %d, queued %t", r.Op, r.After, r.Queued))
		}
	case "end":
		x.s.End()
	case "close":
		x.s.Close()
	case "tick":
		x.s.Tick(now)
	default:
		out = append(out, "unknown input")
	}
	r := x.s.Ready()
	for _, p := range r.Replies {
		switch {
		case p.Aborted:
			out = append(out, fmt.Sprintf("call %d aborts", p.Call))
		case p.Lease != nil:
			out = append(out, fmt.Sprintf("call %d gets %d", p.Call, p.Lease.Token()))
		default:
			out = append(out, fmt.Sprintf("call %d gets %q", p.Call, p.Err))
		}
	}
	for _, op := range r.Cancel {
		out = append(out, fmt.Sprintf("cancel op %d", op))
	}
	for _, back := range r.Return {
		out = append(out, fmt.Sprintf("op %d: give %d back", back.Op, back.Lease.Token()))
	}
	switch {
	case r.Unrenewed != 0:
		out = append(out, fmt.Sprintf("stop the session: no request for %s, %s late", r.Unrenewed, r.Late))
	case r.Stop:
		out = append(out, "stop the session")
	}
	state := []string{"starting", "live", "stopping", "over"}[x.s.State()]
	if next := x.s.Next(); next != 0 {
		state += fmt.Sprintf(" until %s", next-began)
	}
	return strings.Join(append(out, state), "; ")
}

// check fails the test if an invariant does not hold.
func check(t interface{ Fatalf(string, ...any) }, s *Session) {
	if idle := s.state == Live && s.calls == 0; idle != (s.ends != 0) {
		t.Fatalf("state %d, %d calls, ends %v: a session has a caller, a time, or is stopped", s.state, s.calls, s.ends)
	}
	for key, n := range s.names {
		switch absent, ok := s.absent[key]; {
		case n.lease == nil && n.op == 0 && n.dropped == 0:
			t.Fatalf("%s is neither held, waited for nor given up, and is kept", key)
		case n.lease != nil && n.op != 0:
			t.Fatalf("%s is held and waited for", key)
		case len(n.waiters) > 0 && n.op == 0:
			t.Fatalf("calls %d wait for nothing", n.waiters)
		case ok && (len(n.waiters) > 0 || n.lease == nil && n.op == 0):
			t.Fatalf("%s is given up at %v, and calls %d wait", key, absent, n.waiters)
		}
	}
	for key := range s.absent {
		if s.names[key] == nil {
			t.Fatalf("%s is given up, and is not there", key)
		}
	}
}

// cluster is what the cluster has of a session, for TestModel: of each name a queue place or a grant,
// and the operations under way, which it carries out in their order.
type cluster struct {
	*rapid.T
	s     Session
	now   time.Duration
	token uint64
	held  map[string]*grant
	ops   map[Op]*operation
	calls map[Call]*request
	last  Call
}

type operation struct {
	name     string
	after    Op
	lease    *grant // to be released; nil: it acquires
	byName   bool
	canceled bool
}

type request struct {
	name  string
	set   Set
	waits Op // 0: it does not
}

// TestModel: under random requests, outcomes, hang-ups and times each call gets one answer, only one
// operation of a name is under way, what was given up is given back, and what the machine believes
// to hold is what the cluster has granted.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &cluster{T: t, now: began, held: make(map[string]*grant), ops: make(map[Op]*operation),
			calls: make(map[Call]*request)}
		c.s.Enter()
		gone := rapid.Bool().Draw(t, "gone before it has started")
		if gone {
			c.s.Leave(c.now, c.s.Life())
		}
		c.s.Started(c.now, 10*time.Second)
		if !gone {
			c.s.Leave(c.now, c.s.Life())
		}
		c.follow()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if c.s.State() != Live {
				break
			}
			c.random()
		}
		c.rest()
	})
}

func (c *cluster) name() string { return rapid.SampledFrom([]string{"a", "b"}).Draw(c.T, "name") }

// some draws a key of a map; 0: it is empty.
func some[K cmp.Ordered, V any](c *cluster, what string, m map[K]V) (k K) {
	if len(m) > 0 {
		k = rapid.SampledFrom(slices.Sorted(maps.Keys(m))).Draw(c.T, what)
	}
	return k
}

func (c *cluster) random() {
	c.now += time.Duration(rapid.IntRange(0, 1500).Draw(c.T, "ms")) * time.Millisecond
	c.s.Tick(c.now)
	c.follow()
	if c.s.State() != Live {
		return
	}
	switch rapid.IntRange(0, 7).Draw(c.T, "input") {
	case 0, 1:
		c.last++
		q := &request{name: c.name(), set: Set{Ephemeral: true, Count: rapid.Uint64Range(1, 2).Draw(c.T, "count")}}
		if !c.s.Enter() {
			c.Fatalf("a live session refuses a request")
		}
		c.calls[c.last] = q
		step := c.s.Acquire(c.last, q.name, q.set, false)
		switch {
		case step.Refused:
			c.answered(c.last)
		case step.Lease != nil: // confirmed
			if c.held[q.name] != step.Lease.(*grant) {
				c.s.Lost(q.name, step.Lease)
			}
			c.answered(c.last)
		case step.Start:
			c.ops[step.Op] = &operation{name: q.name, after: step.After}
			q.waits = step.Op
		default:
			q.waits = step.Op
		}
	case 2, 3:
		c.carryOut(some(c, "op", c.ops))
	case 4:
		if call := some(c, "call", c.calls); call != 0 {
			c.s.HungUp(c.now, call, c.calls[call].name)
			c.answered(call)
		}
	case 5:
		if call := some(c, "call", c.calls); call != 0 {
			if name := c.calls[call].name; rapid.Bool().Draw(c.T, "gives up") {
				c.s.GiveUp(call, name)
			} else {
				c.s.WaitOver(call, name)
			}
			c.answered(call)
		}
	case 6:
		name, token := c.name(), uint64(0)
		if rapid.Bool().Draw(c.T, "with a token") {
			token = rapid.Uint64Range(1, c.token+1).Draw(c.T, "token")
		}
		before := c.held[name]
		c.s.Enter()
		if r := c.s.Release(name, token); r.Op != 0 {
			if token != 0 && (r.Lease == nil || r.Lease.Token() != token) {
				c.Fatalf("a release of %d takes %v", token, r)
			}
			op := &operation{name: name, after: r.After, byName: r.Lease == nil}
			if r.Lease != nil {
				op.lease = r.Lease.(*grant)
			}
			c.ops[r.Op] = op
		} else if token != 0 && before != nil && before.token == token && c.known(name) {
			c.Fatalf("a release of the grant %d does nothing", token)
		}
		c.s.Leave(c.now, c.s.Life())
	case 7: // the cluster takes a grant away
		if name := some(c, "held", c.held); name != "" {
			l := c.held[name]
			delete(c.held, name)
			c.s.Lost(name, l)
		}
	}
	c.follow()
}

// known reports whether the machine holds a name.
func (c *cluster) known(name string) bool {
	l, _ := c.s.Lease(name)
	return l != nil
}

// carryOut does one operation, once the one before it has ended.
func (c *cluster) carryOut(number Op) {
	op := c.ops[number]
	if op == nil || c.ops[op.after] != nil {
		return
	}
	switch l := c.held[op.name]; {
	case op.lease != nil && l == op.lease, op.byName:
		delete(c.held, op.name)
	case op.lease != nil: // lost meanwhile
	case op.canceled && rapid.Bool().Draw(c.T, "too late to cancel"), !op.canceled:
		if l != nil {
			c.Fatalf("%s is acquired while the session holds %d", op.name, l.token)
		}
		if rapid.IntRange(0, 3).Draw(c.T, "outcome") > 0 {
			c.token++
			l = &grant{c.token, 2}
			c.held[op.name] = l
			ended := c.s.Done(number, op.name, l, nil)
			if !ended {
				op.lease = l // follow gives it back
				c.follow()
				return
			}
			break
		}
		fallthrough
	default:
		c.s.Done(number, op.name, nil, errRefused)
	}
	delete(c.ops, number)
	c.s.Ended(number, op.name)
	c.follow()
}

// answered ends a call.
func (c *cluster) answered(call Call) {
	delete(c.calls, call)
	c.s.Leave(c.now, c.s.Life())
}

// follow does what the machine says, and checks it.
func (c *cluster) follow() {
	r := c.s.Ready()
	for _, p := range r.Replies {
		q := c.calls[p.Call]
		if q == nil || q.waits == 0 {
			c.Fatalf("call %d is answered, and does not wait", p.Call)
		}
		if p.Lease != nil && c.held[q.name] != p.Lease.(*grant) {
			c.Fatalf("call %d is told of a grant that is not held", p.Call)
		}
		c.answered(p.Call)
	}
	for _, op := range r.Cancel {
		if c.ops[op] == nil || c.ops[op].canceled {
			c.Fatalf("op %d is canceled, and is not under way", op)
		}
		c.ops[op].canceled = true
	}
	for _, back := range r.Return {
		if c.ops[back.Op] == nil {
			c.ops[back.Op] = &operation{name: back.Name}
		}
		c.ops[back.Op].lease = back.Lease.(*grant)
	}
	check(c.T, &c.s)
	for name, l := range c.held {
		returned := slices.ContainsFunc(slices.Collect(maps.Values(c.ops)), func(op *operation) bool { return op.lease == l })
		if known, _ := c.s.Lease(name); known != Lease(l) && !returned {
			c.Fatalf("the session holds %d of %s: the machine neither knows it nor gives it back", l.token, name)
		}
	}
}

// rest lets everything end: each call is answered, and nothing is held for ever.
func (c *cluster) rest() {
	for c.s.State() == Live && (len(c.ops) > 0 || len(c.calls) > 0) {
		for _, number := range slices.Sorted(maps.Keys(c.ops)) {
			c.carryOut(number)
		}
		for _, call := range slices.Sorted(maps.Keys(c.calls)) {
			if c.calls[call] != nil && len(c.ops) == 0 {
				c.Fatalf("call %d waits for ever", call)
			}
		}
	}
	c.now += time.Hour
	c.s.Tick(c.now)
	c.s.Ready()
	if c.s.State() == Live {
		c.Fatalf("a session without callers lives for ever")
	}
}
