package process

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/signalbox-dev/signalbox/protocol"
)

func init() { flag.Var(flag.Lookup("rewrite").Value, "update", "rewrite the scripts") }

// TestScripts runs testdata/scripts: each file tells rules as a story. Regenerate with -update and
// read the diff.
//
// A directive is one of these; sessions have names, and times are ms of log time.
//
//	new [floor=n] [OPTIONS]   a process without members; OPTIONS are election debounce timeout min
//	                          max return
//	at t=ms                   one Apply: each input line is a call, then Tick; the output is what
//	                          left the process
//	resend NAME...            what they have not confirmed
//	describe, history, next   reads
//	restore                   to bytes and back
//
// Calls: join NAME [key= data= weight=], leave NAME, ended NAME, prepared NAME EPOCH, fail NAME
// EPOCH TEXT, complete NAME EPOCH [RESULT], completed NAME EPOCH, force, evict NAME, alter OPTIONS;
// ready EPOCH NAME... confirms for several that they prepared, and all-completed EPOCH NAME... that
// they completed.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		x := &scriptRunner{t: t, names: []string{""}}
		datadriven.RunTest(t, path, x.directive)
	})
}

type scriptRunner struct {
	t     *testing.T
	p     *Process
	at    Now
	names []string // sessions are their places
	out   Out
	b     strings.Builder
}

func (x *scriptRunner) session(name string) uint64 {
	for i, n := range x.names {
		if n == name && i > 0 {
			return uint64(i)
		}
	}
	x.names = append(x.names, name)
	return uint64(len(x.names) - 1)
}

func (x *scriptRunner) name(session uint64) string {
	if session < uint64(len(x.names)) && session > 0 {
		return x.names[session]
	}
	return "-"
}

func number(s string) uint64 {
	if s == "MAX" {
		return ^uint64(0)
	}
	n, _ := strconv.ParseUint(s, 10, 64)
	return n
}

func (x *scriptRunner) options(words []string) (o protocol.ProcessOptions) {
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		switch k {
		case "election":
			for e := protocol.ElectOldest; e <= protocol.ElectPreferred; e++ {
				if e.String() == v {
					o.Election = e
				}
			}
			if v == "bad" {
				o.Election = 9
			}
		case "debounce":
			o.Debounce = number(v)
		case "timeout":
			o.RoundTimeout = number(v)
		case "min":
			o.BackoffMin = number(v)
		case "max":
			o.BackoffMax = number(v)
		case "return":
			o.Return = number(v)
		}
	}
	return o
}

func (x *scriptRunner) directive(t *testing.T, d *datadriven.TestData) string {
	x.t = t
	x.b.Reset()
	x.out.Reset()
	var words []string
	for _, a := range d.CmdArgs {
		if len(a.Vals) > 0 {
			words = append(words, a.Key+"="+a.Vals[0])
		} else {
			words = append(words, a.Key)
		}
	}
	switch d.Cmd {
	case "new":
		var floor uint64
		for _, w := range words {
			if k, v, _ := strings.Cut(w, "="); k == "floor" {
				floor = number(v)
			}
		}
		p, err := New(x.at, floor, x.options(words))
		if err != nil {
			return err.Error() + "\n"
		}
		x.p = p
		return ""
	case "at":
		if len(words) > 0 {
			_, v, _ := strings.Cut(words[0], "=")
			x.at = Now{Log: number(v), Wall: 1_000_000 + number(v)}
		}
		for _, line := range strings.Split(d.Input, "\n") {
			if line != "" {
				x.call(line)
			}
		}
		x.p.Tick(x.at, &x.out)
		x.notify()
		if x.p.Expired(x.at) {
			x.b.WriteString("gone\n")
		}
	case "resend":
		before := x.p.Digest()
		for _, w := range words {
			if !x.p.Resend(x.session(w), &x.out) {
				fmt.Fprintf(&x.b, "%s is no member\n", w)
			}
		}
		x.notify()
		if x.p.Digest() != before {
			t.Fatal("resend changed the state")
		}
	case "next":
		at, ok := x.p.Next()
		if !ok {
			return "never\n"
		}
		return fmt.Sprintln(at)
	case "restore":
		p, err := Decode(x.p.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		if p.Digest() != x.p.Digest() {
			t.Fatal("digests differ")
		}
		x.p = p
		return "ok\n"
	case "describe":
		x.describe()
	case "history":
		for _, e := range x.p.History() {
			fmt.Fprintf(&x.b, "epoch %d topology %d %s coordinator %s size %d attempt %d prepared %d decided %d lasted %d %s\n",
				e.Epoch, e.Topology, e.Outcome,
				x.name(e.Coordinator), e.Size, e.Attempt, e.Prepared, e.Decided, e.Duration, e.Text)
		}
	default:
		t.Fatalf("unknown directive %q", d.Cmd)
	}
	if err := x.p.Check(); err != nil {
		t.Fatal(err)
	}
	return x.b.String()
}

func (x *scriptRunner) call(line string) {
	w := strings.Fields(line)
	var err error
	extra := ""
	switch w[0] {
	case "join":
		j := Join{Session: x.session(w[1])}
		for _, a := range w[2:] {
			k, v, _ := strings.Cut(a, "=")
			if n, ok := strings.CutPrefix(v, "*"); ok {
				v = strings.Repeat("x", int(number(n)))
			}
			switch k {
			case "key":
				j.Key = v
			case "data":
				j.Data = []byte(v)
			case "identity":
				j.Identity = v
			case "weight":
				j.Weight = uint32(number(v))
			}
		}
		var r protocol.ProcessJoinReply
		if r, err = x.p.Join(x.at, j, &x.out); err == nil {
			extra = fmt.Sprintf(" #%d topology %d", r.Order, r.Topology)
			if r.Returned {
				extra += " returned"
			}
			if r.AlreadyMember {
				extra += " again"
			}
		}
	case "leave":
		var completedEpoch uint64
		if completedEpoch, err = x.p.Leave(x.at, x.session(w[1]), &x.out); err == nil {
			extra = fmt.Sprintf(" completed %d", completedEpoch)
		}
	case "ended":
		x.p.SessionEnded(x.at, x.session(w[1]), &x.out)
	case "prepared":
		err = x.p.Prepared(x.at, x.session(w[1]), number(w[2]), &x.out)
	case "fail":
		err = x.p.Fail(x.at, x.session(w[1]), number(w[2]), strings.Join(w[3:], " "), &x.out)
	case "complete":
		result := []byte(strings.Join(w[3:], " "))
		if len(w) > 3 && w[3] == "TOO-LONG" {
			result = make([]byte, protocol.MaxProcessResult+1)
		}
		err = x.p.Complete(x.at, x.session(w[1]), number(w[2]), result, &x.out)
	case "completed":
		err = x.p.Completed(x.at, x.session(w[1]), number(w[2]), &x.out)
	case "ready", "all-completed":
		for _, n := range w[2:] {
			f := x.p.Prepared
			if w[0] == "all-completed" {
				f = x.p.Completed
			}
			if e := f(x.at, x.session(n), number(w[1]), &x.out); e != nil {
				err = e
			}
		}
	case "force":
		err = x.p.Force(x.at, strings.Join(w[1:], " "), &x.out)
	case "evict":
		err = x.p.Evict(x.at, x.session(w[1]), strings.Join(w[2:], " "), &x.out)
	case "alter":
		err = x.p.Alter(x.at, x.options(w[1:]), &x.out)
	default:
		x.t.Fatalf("unknown call %q", line)
	}
	if err != nil {
		fmt.Fprintf(&x.b, "%s -> %s: %v\n", line, protocol.StatusOf(err), err.(*protocol.Error).Message)
	} else {
		fmt.Fprintf(&x.b, "%s -> OK%s\n", line, extra)
	}
	if err := x.p.Check(); err != nil {
		x.t.Fatalf("after %q: %v", line, err)
	}
}

func (x *scriptRunner) notify() {
	for i := range x.out.Events {
		e := &x.out.Events[i]
		fmt.Fprintf(&x.b, "  to %s: ", x.name(e.Session))
		switch e.Kind {
		case EventPrepare, EventResume:
			verb := "prepare"
			if e.Kind == EventResume {
				verb = "resume"
			}
			fmt.Fprintf(&x.b, "%s %d topology=%d coordinator=%s token=%d",
				verb, e.Epoch, e.Topology, x.name(e.Coordinator), e.Token)
			if e.Attempt > 0 {
				fmt.Fprintf(&x.b, " attempt=%d", e.Attempt)
			}
			if e.CompletedEpoch > 0 {
				fmt.Fprintf(&x.b, " completed=%d", e.CompletedEpoch)
			}
			x.b.WriteString(" members")
			for _, m := range e.Members {
				fmt.Fprintf(&x.b, " %s", x.name(m.Session))
			}
			if len(e.Result) > 0 {
				fmt.Fprintf(&x.b, " result=%q", e.Result)
			}
		case EventCoordinate:
			fmt.Fprintf(&x.b, "coordinate %d", e.Epoch)
		case EventCancel:
			fmt.Fprintf(&x.b, "cancel %d (%s)", e.Epoch, e.Text)
		case EventComplete:
			fmt.Fprintf(&x.b, "complete %d", e.Epoch)
			if len(e.Result) > 0 {
				fmt.Fprintf(&x.b, " result=%q", e.Result)
			}
		case EventRemoved:
			fmt.Fprintf(&x.b, "removed completed=%d (%s)", e.CompletedEpoch, e.Text)
		}
		x.b.WriteString("\n")
	}
	for _, c := range x.out.Changes {
		x.b.WriteString("  change: ")
		switch c.Kind {
		case protocol.ProcessJoined:
			fmt.Fprintf(&x.b, "%s joined, topology %d", x.name(c.Session), c.Topology)
		case protocol.ProcessLeft:
			fmt.Fprintf(&x.b, "%s left, topology %d: %s", x.name(c.Session), c.Topology, c.Text)
		case protocol.ProcessAbsent:
			fmt.Fprintf(&x.b, "%s absent", x.name(c.Session))
		case protocol.ProcessReturned:
			fmt.Fprintf(&x.b, "%s returned", x.name(c.Session))
		case protocol.ProcessStarted:
			fmt.Fprintf(&x.b, "round %d started, coordinator %s", c.Epoch, x.name(c.Session))
		case protocol.ProcessPhaseChanged:
			fmt.Fprintf(&x.b, "%v", c.Phase)
		case protocol.ProcessRoundEnded:
			fmt.Fprintf(&x.b, "round %d %v", c.Epoch, c.Outcome)
			if c.Text != "" {
				fmt.Fprintf(&x.b, ": %s", c.Text)
			}
		case protocol.ProcessAltered:
			x.b.WriteString("options")
		}
		x.b.WriteString("\n")
	}
}

func (x *scriptRunner) describe() {
	d := x.p.Describe()
	fmt.Fprintf(&x.b, "%v epoch %d topology %d coordinator %s", d.Phase, d.Epoch, d.Topology, x.name(d.Coordinator))
	if d.Attempt > 0 {
		fmt.Fprintf(&x.b, " attempt %d", d.Attempt)
	}
	if d.Start > 0 {
		fmt.Fprintf(&x.b, " start %d", d.Start)
	}
	x.b.WriteString("\n")
	for _, m := range d.Members {
		fmt.Fprintf(&x.b, "  #%d %s %s token %d", m.Member.Order, x.name(m.Member.Session), m.Status, m.Token)
		if m.Member.Key != "" {
			fmt.Fprintf(&x.b, " key %s", m.Member.Key)
		}
		if m.Until > 0 {
			fmt.Fprintf(&x.b, " until %d", m.Until)
		}
		x.b.WriteString("\n")
	}
}
