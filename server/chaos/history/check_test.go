package history

import (
	"bytes"
	"math"
	"os"
	"strings"
	"testing"
)

// script is a history with one call a line and made-up times. A call lasts from the given time to
// the next, unless it says otherwise.
type script struct {
	ops []Op
	at  int64
}

func (s *script) add(op Op) *script {
	s.at += 10
	op.Name = "x"
	if op.Lane == 0 {
		op.Lane = int(op.Session)
	}
	if op.Call == 0 {
		op.Call = s.at
	}
	switch {
	case op.Result == Unknown:
		op.Return = Never
	case op.Return == 0:
		op.Return = op.Call + 5
	}
	s.ops = append(s.ops, op)
	return s
}

func (s *script) create(limit uint64) *script {
	return s.add(Op{Kind: Create, Lane: 100, Limit: limit, Result: OK})
}

func (s *script) acquire(session, count, token uint64) *script {
	return s.add(Op{Kind: Acquire, Session: session, Count: count, Token: token, Result: OK})
}

func (s *script) try(session, count uint64, r Result) *script {
	return s.add(Op{Kind: Acquire, Session: session, Count: count, Try: true, Result: r})
}

func (s *script) release(session, token uint64) *script {
	return s.add(Op{Kind: Release, Session: session, Token: token, Result: OK})
}

func (s *script) gone(session uint64, from, to int64) *script {
	return s.add(Op{Kind: Ended, Session: session, Call: from, Return: to, Result: OK})
}

func (s *script) describe(limit uint64, owners ...Entry) *script {
	return s.add(Op{Kind: Describe, Lane: 101, Limit: limit, Owners: owners, Result: OK})
}

func (s *script) set(lane int, data string, version uint64) *script {
	return s.add(Op{Kind: Set, Lane: lane, Process: lane, Data: data, Version: version, Result: OK})
}

func (s *script) guarded(lane int, data string, want, version uint64, r Result) *script {
	return s.add(Op{Kind: Set, Lane: lane, Process: lane, Data: data, Guarded: true, Want: want, Version: version, Result: r})
}

func (s *script) get(k Kind, lane int, data string, version uint64) *script {
	return s.add(Op{Kind: k, Lane: lane, Process: lane, Data: data, Version: version, Result: OK})
}

// stories is a history and whether it is possible. Each impossible one differs little from a
// possible one.
var stories = []struct {
	name string
	good bool
	s    *script
}{
	{"one after the other", true, new(script).create(1).acquire(1, 1, 5).release(1, 5).acquire(2, 1, 6).describe(1, Entry{2, 1, 6}).release(2, 6).describe(1)},
	{"two at once", false, new(script).create(1).acquire(1, 1, 5).acquire(2, 1, 6).release(1, 5)},
	{"two at once, and there is room", true, new(script).create(2).acquire(1, 1, 5).acquire(2, 1, 6).release(1, 5)},
	{"one more than the limit", false, new(script).create(2).acquire(1, 2, 5).acquire(2, 1, 6)},
	{"a token twice", false, new(script).create(1).acquire(1, 1, 5).release(1, 5).acquire(2, 1, 5)},
	{"a token that goes back", false, new(script).create(1).acquire(1, 1, 5).release(1, 5).acquire(2, 1, 4)},
	{"a release of nothing", false, new(script).create(1).acquire(1, 1, 5).release(1, 5).release(1, 5)},
	{"a release under an old token", false, new(script).create(1).acquire(1, 1, 5).release(1, 5).acquire(1, 1, 6).release(1, 5)},
	{"granted while another is asked to wait", true, new(script).create(1).acquire(1, 1, 5).
		add(Op{Kind: Acquire, Session: 2, Count: 1, Token: 6, Call: 25, Return: 60, Result: OK}).
		add(Op{Kind: Release, Session: 1, Token: 5, Call: 40, Return: 45, Result: OK})},
	{"granted before the other's release began", false, new(script).create(1).acquire(1, 1, 5).
		add(Op{Kind: Acquire, Session: 2, Count: 1, Token: 6, Call: 25, Return: 38, Result: OK}).
		add(Op{Kind: Release, Session: 1, Token: 5, Call: 40, Return: 45, Result: OK})},
	{"a try at what is held", true, new(script).create(1).acquire(1, 1, 5).try(2, 1, NotAcquired)},
	{"a try at what is free", false, new(script).create(1).acquire(1, 1, 5).release(1, 5).try(2, 1, NotAcquired)},
	{"the session's end frees", true, new(script).create(1).acquire(1, 1, 5).gone(1, 30, 50).add(Op{Kind: Acquire, Session: 2, Count: 1, Token: 6, Call: 41, Result: OK})},
	{"a living session's lock is given away", false, new(script).create(1).acquire(1, 1, 5).
		add(Op{Kind: Acquire, Session: 2, Count: 1, Token: 6, Call: 25, Return: 30, Result: OK}).gone(1, 40, 50)},
	{"an acquire nobody heard of again has it", true, new(script).create(1).
		add(Op{Kind: Acquire, Session: 1, Count: 1, Result: Unknown}).try(2, 1, NotAcquired)},
	{"an acquire nobody heard of again has it not", true, new(script).create(1).
		add(Op{Kind: Acquire, Session: 1, Count: 1, Result: Unknown}).try(2, 1, OK)},
	{"shown: an owner that left", false, new(script).create(1).acquire(1, 1, 5).release(1, 5).describe(1, Entry{1, 1, 5})},
	{"shown: not yet the owner of a grant that was told", false, new(script).create(1).acquire(1, 1, 5).describe(1)},
	{"a queue jumped", false, new(script).create(1).acquire(1, 1, 5).
		add(Op{Kind: Acquire, Session: 2, Count: 1, Call: 25, Return: 100, Queued: 28, Order: 6, Token: 6, Result: OK}).
		add(Op{Kind: Acquire, Session: 3, Count: 1, Call: 32, Return: 50, Queued: 35, Order: 7, Token: 7, Result: OK}).
		add(Op{Kind: Release, Session: 3, Token: 7, Call: 52, Return: 55, Result: OK}).
		add(Op{Kind: Release, Session: 1, Token: 5, Call: 60, Return: 65, Result: OK})},
	{"a fresh lock's end deletes it", true, new(script).
		add(Op{Kind: Acquire, Session: 1, Count: math.MaxUint64, Token: 3, Ephemeral: true, Result: OK}).release(1, 3).
		add(Op{Kind: Describe, Lane: 101, Result: NotFound})},
	{"deleted while it is held", false, new(script).create(1).acquire(1, 1, 5).add(Op{Kind: Delete, Lane: 100, Result: OK})},
	{"made twice", false, new(script).create(1).create(1)},

	{"versions one by one", true, new(script).set(1, "a", 1).guarded(2, "b", 1, 2, OK).guarded(1, "c", 1, 0, Refused).get(Get, 3, "b", 2)},
	{"versions with gaps", true, new(script).set(1, "a", 4).guarded(2, "b", 4, 9, OK).guarded(1, "c", 5, 0, Refused).get(Get, 3, "b", 9)},
	{"a version that does not rise", false, new(script).set(1, "a", 4).set(1, "b", 4)},
	{"the version of a write nobody heard of is that of a read", false, new(script).set(1, "a", 4).
		add(Op{Kind: Set, Lane: 2, Data: "b", Result: Unknown}).get(Get, 3, "b", 7).get(Get, 3, "b", 8)},
	{"the version of a write nobody heard of is not that before it", false, new(script).set(1, "a", 4).
		add(Op{Kind: Set, Lane: 2, Data: "b", Result: Unknown}).get(Get, 3, "b", 4)},
	{"a write that was acknowledged is lost", false, new(script).set(1, "a", 1).set(2, "b", 2).get(Get, 3, "a", 1)},
	{"a strict read that is late", false, new(script).set(1, "a", 1).get(Get, 3, "a", 1).set(1, "b", 2).get(Get, 3, "a", 1)},
	{"compare and set of the same version twice", false, new(script).set(1, "a", 1).guarded(1, "b", 1, 2, OK).guarded(2, "c", 1, 2, OK)},
	{"a compare and set that is refused for nothing", false, new(script).set(1, "a", 1).guarded(1, "b", 1, 0, Refused)},
	{"a write nobody heard of again is seen", true, new(script).set(1, "a", 1).add(Op{Kind: Set, Lane: 2, Data: "b", Result: Unknown}).get(Get, 3, "b", 2)},
	{"it is seen, and then not", false, new(script).set(1, "a", 1).add(Op{Kind: Set, Lane: 2, Data: "b", Result: Unknown}).get(Get, 3, "b", 2).get(Get, 3, "a", 1)},
	{"relaxed reads lag", true, new(script).set(1, "a", 1).set(1, "b", 2).get(RelaxedGet, 3, "a", 1).get(RelaxedGet, 3, "b", 2)},
	{"relaxed reads go back", false, new(script).set(1, "a", 1).set(1, "b", 2).get(RelaxedGet, 3, "b", 2).get(RelaxedGet, 3, "a", 1)},
	{"a client reads relaxed what it wrote", true, new(script).set(1, "a", 1).set(1, "b", 2).get(RelaxedGet, 1, "b", 2)},
	{"a client reads relaxed what was before its own write", false, new(script).set(1, "a", 1).set(1, "b", 2).get(RelaxedGet, 1, "a", 1)},
	{"a client reads relaxed what was before its own strict read", false, new(script).set(1, "a", 1).set(1, "b", 2).get(Get, 3, "b", 2).get(RelaxedGet, 3, "a", 1)},
	{"a relaxed read of what was never written", false, new(script).set(1, "a", 1).get(RelaxedGet, 3, "z", 1)},

	{"a node is made, dropped and made", true,
		new(script).add(Op{Kind: CreateNode, Token: 4, Result: OK}).add(Op{Kind: DropNode, Result: OK}).
			add(Op{Kind: CreateNode, Token: 7, Result: OK}).add(Op{Kind: CreateNode, Result: Exists})},
	{"a node is made again by the same call, which another drop came into", true,
		new(script).add(Op{Call: 1, Return: 10, Kind: CreateNode, Token: 5, Result: OK}).
			add(Op{Call: 2, Return: 3, Kind: CreateNode, Result: Exists}).add(Op{Call: 4, Return: 5, Kind: DropNode,
			Result: OK}).add(Op{Call: 6, Return: 7, Kind: CreateNode, Result: Exists})},
	{"a node is there again after its drop, and nobody makes it", false,
		new(script).add(Op{Call: 1, Return: 3, Kind: CreateNode, Token: 5, Result: OK}).
			add(Op{Call: 4, Return: 5, Kind: DropNode, Result: OK}).add(Op{Call: 6, Return: 7, Kind: CreateNode, Result: Exists})},
	{"a node's id comes back", false, new(script).add(Op{Kind: CreateNode, Token: 4, Result: OK}).add(Op{Kind: DropNode, Result: OK}).
		add(Op{Kind: CreateNode, Token: 4, Result: OK})},
	{"a node is made twice", false, new(script).add(Op{Kind: CreateNode, Token: 4, Result: OK}).add(Op{Kind: CreateNode, Token: 5, Result: OK})},

	{"beliefs one after the other", true,
		new(script).create(1).acquire(1, 1, 5).add(Op{Kind: Believed, Session: 1, Count: 1, Token: 5, Return: 40}).
			add(Op{Kind: Release, Session: 1, Token: 5, Call: 41, Result: OK})},
	{"two believe", false, new(script).create(1).add(Op{Kind: Believed, Session: 1, Count: 1, Token: 5, Call: 20, Return: 40}).
		add(Op{Kind: Believed, Session: 2, Count: 1, Token: 6, Call: 39, Return: 50})},
	{"writes under rising tokens", true,
		new(script).add(Op{Kind: Fenced, Token: 5, Result: OK}).add(Op{Kind: Fenced, Token: 6, Seen: 5, Result: OK}).
			add(Op{Kind: Fenced, Token: 5, Seen: 6, Result: Refused})},
	{"a write under a lower token", false, new(script).add(Op{Kind: Fenced, Token: 6, Result: OK}).add(Op{Kind: Fenced, Token: 5, Seen: 6, Result: OK})},
	{"a holder is refused", false, new(script).add(Op{Kind: Fenced, Token: 6, Result: OK}).add(Op{Kind: Fenced, Token: 5, Count: 1, Seen: 6, Result: Refused})},
}

func TestStories(t *testing.T) {
	for _, c := range stories {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			got := Check(c.s.ops, Options{Pictures: dir})
			if good := len(got.Findings) == 0; good != c.good {
				t.Fatalf("judged %v: %+v", good, got.Findings)
			}
			for _, f := range got.Findings {
				if len(f.Ops) != len(c.s.ops) || !strings.HasPrefix(f.What, "x: ") {
					t.Errorf("finding %+v", f)
				}
				if f.Picture != "" {
					if b, err := os.ReadFile(f.Picture); err != nil ||
						!bytes.Contains(b, []byte("<html")) && !bytes.Contains(b, []byte("<!DOCTYPE html")) {
						t.Errorf("picture: %v", err)
					}
				}
			}
		})
	}
}

// TestFile: what was written is read. Calls without an end have an unknown outcome.
func TestFile(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b)
	first, err := w.Begin(Op{Kind: Set, Name: "a", Call: 1, Data: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Begin(Op{Kind: Get, Name: "a", Call: 2}); err != nil {
		t.Fatal(err)
	}
	if err := w.End(first, Op{Kind: Set, Name: "a", Call: 1, Return: 3, Data: "x", Version: 1, Result: OK}); err != nil {
		t.Fatal(err)
	}
	b.WriteString(`{"id":3,"k":"ge`) // its writer was killed
	ops, err := Read(&b)
	if err != nil || len(ops) != 2 {
		t.Fatalf("%v %v", ops, err)
	}
	if o := ops[0]; o.Result != OK || o.Return != 3 || o.Version != 1 {
		t.Errorf("%+v", o)
	}
	if o := ops[1]; o.Result != Unknown || o.Return != Never {
		t.Errorf("%+v", o)
	}
	if _, err := Read(strings.NewReader("what is this\n")); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Error(err)
	}
}

func TestSummary(t *testing.T) {
	s := new(script).create(1).acquire(1, 1, 5).add(Op{Kind: Release, Session: 1, Token: 5,
		Result: Unknown}).add(Op{Kind: Believed, Session: 1, Count: 1, Token: 5})
	got := Check(s.ops, Options{})
	if got.Names != 1 || got.Ops != 4 || got.Unknown != 1 || got.ByResult[OK] != 2 || got.ByKind[Believed] != 1 ||
		got.Longest != 5 || got.MaxPerName != 4 {
		t.Fatalf("%+v", got)
	}
}
