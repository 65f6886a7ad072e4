package ratelimit

import (
	"context"
	goflag "flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/signalbox-dev/signalbox/protocol"
)

func init() { goflag.Var(goflag.Lookup("rewrite").Value, "update", "rewrite the scripts") }

// TestScripts runs testdata/scripts: each file tells rules of the participant as a story.
// Regenerate with -update and read the diff.
//
// The only directive is do; each input line is a command, echoed with what the machine does.
// Rates and amounts are in units.
//
//	at +50
//	    ms pass; the machine is called whenever it wants to be
//	session N [ROOT] | lost [ROOT] [final]
//	    the parts of api and of other get a session; it ends, with final for good
//	open PATH | close PATH
//	wait PATH[+PATH ...] n ... | try PATH n | allow PATH n | spent PATH n |
//	give-up CALL
//	joined, left [ROOT]
//	refreshed [ROOT] [leader=n] [length=ms] [again], PATH [rate=n] [burst=n] [level=n] [most=n]
//	        [floor=n] [remote] [missing], PATH ...
//	    leaves that are not named get nothing
//	acquired [ROOT] n [retry=ms] [leader=n]
//	failed [ROOT]
//	    nobody answers. Answers are to the oldest request, of the root if there is one
//	notice [changed]
//	    the server asks for a refresh
//	slow-backs | backed
//	    what gives units back is answered by backed alone, and at once before
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		x := &scriptRunner{now: 1e9, leaves: map[string]*leaf{}, calls: map[*call]int{}}
		for _, root := range []string{"api", "other"} {
			x.m.parts = append(x.m.parts, newPart(root))
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			for line := range strings.Lines(d.Input) {
				if line = strings.TrimSpace(line); line != "" {
					x.say("%s", line)
					x.command(t, line)
					x.drain()
				}
			}
			s := x.b.String()
			x.b.Reset()
			return s
		})
	})
}

type scriptRunner struct {
	m      machine
	now    int64
	leaves map[string]*leaf
	calls  map[*call]int
	list   []*call
	sent   []action // that are not answered
	slow   bool     // what gives units back is not answered at once
	b      strings.Builder
}

func (x *scriptRunner) say(format string, args ...any) { fmt.Fprintf(&x.b, format+"\n", args...) }

func units(v uint64) string { return strconv.FormatFloat(float64(v)/1000, 'f', -1, 64) }

func (x *scriptRunner) part(root string) *part {
	for _, p := range x.m.parts {
		if p.root == root {
			return p
		}
	}
	return nil
}

// take removes and returns the oldest request of these kinds, of a root or of any.
func (x *scriptRunner) take(
	t *testing.T, line string, words []string, kinds ...actionKind,
) (a *action, rest []string) {
	t.Helper()
	root := ""
	if len(words) > 0 && x.part(words[0]) != nil {
		root, words = words[0], words[1:]
	}
	for i := range x.sent {
		if slices.Contains(kinds, x.sent[i].kind) && (root == "" || x.sent[i].part.root == root) {
			a := x.sent[i]
			x.sent = slices.Delete(x.sent, i, i+1)
			return &a, words
		}
	}
	t.Fatalf("%s: there is no request", line)
	return nil, nil
}

func (x *scriptRunner) command(t *testing.T, line string) {
	t.Helper()
	words := strings.Fields(line)
	number := func(s string) uint64 {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return uint64(f)
	}
	amount := func(s string) uint64 {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return uint64(f * 1000)
	}
	switch verb := words[0]; verb {
	case "at":
		x.pass(int64(number(words[1])) * 1e6)
	case "session":
		for _, p := range x.m.parts {
			if len(words) == 2 || p.root == words[2] {
				x.m.attached(x.now, p, number(words[1]), 1)
			}
		}
	case "lost":
		var err error
		if words[len(words)-1] == "final" {
			err = protocol.Errorf(protocol.StatusSessionExpired, "the session has ended")
		}
		for _, p := range x.m.parts {
			if err != nil || len(words) == 1 || p.root == words[1] {
				x.m.lost(x.now, p, err)
				x.sent = slices.DeleteFunc(x.sent, func(a action) bool { return a.part == p })
			}
		}
	case "open":
		root, _, _ := strings.Cut(words[1], "/")
		x.leaves[words[1]] = x.m.open(x.now, x.part(root), words[1])
	case "close":
		x.m.release(x.now, x.leaves[words[1]], ErrClosed)
		delete(x.leaves, words[1])
	case "wait", "try":
		for _, n := range words[2:] {
			c := &call{amount: amount(n), try: verb == "try"}
			for path := range strings.SplitSeq(words[1], "+") {
				x.leaves[path].attempt(c.amount)
				c.leaves = append(c.leaves, x.leaves[path])
			}
			x.list = append(x.list, c)
			x.calls[c] = len(x.list)
			x.m.enqueue(x.now, c)
			if c.try && c.heard && !c.finished {
				x.say("  it would wait")
			}
		}
	case "allow":
		l, n := x.leaves[words[1]], amount(words[2])
		l.attempt(n)
		if l.queued.Load() == 0 && l.decide(x.now, n) {
			l.allowed.Add(n)
			x.say("  admitted")
			break
		}
		x.say("  denied")
		l.refuse(n)
		x.m.poke(x.now, l)
	case "spent":
		if l, n := x.leaves[words[1]], amount(words[2]); l.spend(x.now, n) {
			x.say("  taken from the lease")
		} else {
			x.m.oweSpent(x.now, l, n)
		}
	case "give-up":
		x.m.cancel(x.now, x.list[number(words[1])-1], context.Canceled)
	case "notice":
		x.m.notice(x.now, x.part("api"), len(words) > 1)
	case "joined", "left":
		a, _ := x.take(t, line, words[1:], doJoin, doLeave)
		x.m.answered(x.now, a, &protocol.Empty{}, nil)
	case "slow-backs":
		x.slow = true
	case "backed":
		a, _ := x.take(t, line, words[1:], doBack)
		x.m.answered(x.now, a, &protocol.LimitAcquireReply{}, nil)
	case "failed":
		a, _ := x.take(t, line, words[1:], doJoin, doLeave, doRefresh, doAcquire)
		x.m.answered(x.now, a, nil, protocol.Errorf(protocol.StatusUnavailable, "nobody answers"))
	case "acquired":
		a, rest := x.take(t, line, words[1:], doAcquire)
		r := &protocol.LimitAcquireReply{BucketEpoch: 1, LeaderEpoch: 1, Granted: number(rest[0]) > 0}
		r.Until = 1 + uint64(x.now)/1e6 + protocol.MaxLimitWithin // they are granted now
		for _, w := range rest[1:] {
			switch k, v, _ := strings.Cut(w, "="); k {
			case "retry":
				r.Retry = number(v)
			case "leader":
				r.LeaderEpoch = number(v)
			}
		}
		x.m.answered(x.now, a, r, nil)
	case "refreshed":
		head, leaves, _ := strings.Cut(line, ",")
		a, rest := x.take(t, line, strings.Fields(head)[1:], doRefresh)
		q := a.msg.(*protocol.LimitRefresh)
		r := &protocol.LimitRefreshReply{BucketEpoch: 1, LeaderEpoch: 1, Length: 3000, Clock: 1 + uint64(x.now)/1e6,
			Leaves: make([]protocol.LimitLease, len(q.Leaves))}
		for _, w := range rest {
			switch k, v, _ := strings.Cut(w, "="); k {
			case "leader":
				r.LeaderEpoch = number(v)
			case "length":
				r.Length = number(v)
			case "again":
				r.Again = true
			}
		}
		for i := range r.Leaves {
			r.Leaves[i] = protocol.LimitLease{Length: r.Length, Most: 1_000_000}
		}
		for leaf := range strings.SplitSeq(leaves, ",") {
			words := strings.Fields(leaf)
			if len(words) == 0 {
				continue
			}
			i := slices.IndexFunc(q.Leaves, func(f protocol.LimitLeaf) bool { return string(f.Path) == words[0] })
			if i < 0 {
				t.Fatalf("%s: the refresh is not about %s", line, words[0])
			}
			f := &r.Leaves[i]
			for _, w := range words[1:] {
				switch k, v, _ := strings.Cut(w, "="); k {
				case "rate":
					f.Rate, f.Statement = amount(v), []byte("lease")
				case "burst":
					f.Burst, f.Statement = amount(v), []byte("lease")
				case "level":
					f.Level = amount(v)
				case "most":
					f.Most = amount(v)
				case "floor":
					f.Floor = amount(v)
				case "remote":
					f.State = protocol.LimitRemote
				case "missing":
					f.State = protocol.LimitMissing
				}
			}
		}
		x.m.answered(x.now, a, r, nil)
	default:
		t.Fatalf("%s: no such command", line)
	}
}

// pass has time pass. The machine is called when it wants to be, and between two calls not at all.
func (x *scriptRunner) pass(ns int64) {
	for end := x.now + ns; x.now < end; {
		next := end
		for _, p := range x.m.parts {
			if at := p.next(x.now); at > 0 {
				next = min(next, max(at, x.now+1e5))
			}
		}
		x.now = next
		x.m.tick(x.now)
		x.drain()
	}
}

// drain writes the machine's actions.
func (x *scriptRunner) drain() {
	out, ended := x.m.take()
	for _, c := range ended {
		switch {
		case c.err != nil:
			x.say("  %d ms: call %d ends: %v", x.now/1e6-1000, x.calls[c], c.err)
		default:
			x.say("  %d ms: call %d is admitted", x.now/1e6-1000, x.calls[c])
		}
	}
	for i := range out {
		a := &out[i]
		x.say("  %d ms: %s", x.now/1e6-1000, describeAction(a))
		if a.kind != doBack || x.slow {
			x.sent = append(x.sent, *a)
		}
	}
	for i := range out {
		if a := &out[i]; a.kind == doBack && !x.slow {
			x.m.answered(x.now, a, &protocol.LimitAcquireReply{}, nil)
			x.drain()
		}
	}
}

func describeAction(a *action) string {
	var b strings.Builder
	switch q := a.msg.(type) {
	case *protocol.LimitJoin:
		fmt.Fprintf(&b, "join %s", q.Path)
		if q.Again {
			b.WriteString(" again")
		}
	case *protocol.LimitLeave:
		fmt.Fprintf(&b, "leave %s", q.Path)
	case *protocol.LimitAcquire:
		if q.Back > 0 {
			fmt.Fprintf(&b, "give back what acquire %d was granted", q.Back)
			break
		}
		if len(q.Leaves) == 0 {
			fmt.Fprintf(&b, "acquire %d was used", q.Used)
			break
		}
		fmt.Fprintf(&b, "acquire %d of", q.Seq)
		for i := range q.Leaves {
			fmt.Fprintf(&b, " %s", q.Leaves[i].Path)
		}
		fmt.Fprintf(&b, " %s", units(q.Amount))
		if q.Used > 0 {
			fmt.Fprintf(&b, ", acquire %d was used", q.Used)
		}
	case *protocol.LimitRefresh:
		fmt.Fprintf(&b, "refresh %s, knows leader %d", q.Path, q.LeaderEpoch)
		if q.Open != q.Seq {
			fmt.Fprintf(&b, ", wants acquire %d", q.Open)
		}
		for i := range q.Leaves {
			f := &q.Leaves[i]
			fmt.Fprintf(&b, ", %s", f.Path)
			if f.Closed {
				b.WriteString(" closed")
			}
			if f.Demand > 0 {
				fmt.Fprintf(&b, " demand %s", units(f.Demand))
			}
			if f.Waiting > 0 {
				fmt.Fprintf(&b, " waiting %s", units(f.Waiting))
			}
			if len(f.Statement) > 0 {
				b.WriteString(" presents its lease")
			}
		}
	}
	return b.String()
}
