package chaos

import (
	"bytes"
	"math"
	"os"
	"strings"
	"testing"
)

// historyScript is a history with one call a line and made-up times. A call lasts from the given time to
// the next, unless it says otherwise.
type historyScript struct {
	ops []historyOp
	at  int64
}

func (s *historyScript) add(op historyOp) *historyScript {
	s.at += 10
	op.Name = "x"
	if op.Lane == 0 {
		op.Lane = int(op.Session)
	}
	if op.Call == 0 {
		op.Call = s.at
	}
	switch {
	case op.Result == resultUnknown:
		op.Return = neverReturned
	case op.Return == 0:
		op.Return = op.Call + 5
	}
	s.ops = append(s.ops, op)
	return s
}

func (s *historyScript) create(limit uint64) *historyScript {
	return s.add(historyOp{Kind: callCreate, Lane: 100, Limit: limit, Result: resultOK})
}

func (s *historyScript) acquire(session, count, token uint64) *historyScript {
	return s.add(historyOp{Kind: callAcquire, Session: session, Count: count, Token: token, Result: resultOK})
}

func (s *historyScript) try(session, count uint64, r callResult) *historyScript {
	return s.add(historyOp{Kind: callAcquire, Session: session, Count: count, Try: true, Result: r})
}

func (s *historyScript) release(session, token uint64) *historyScript {
	return s.add(historyOp{Kind: callRelease, Session: session, Token: token, Result: resultOK})
}

func (s *historyScript) gone(session uint64, from, to int64) *historyScript {
	return s.add(historyOp{Kind: callEnded, Session: session, Call: from, Return: to, Result: resultOK})
}

func (s *historyScript) describe(limit uint64, owners ...historyEntry) *historyScript {
	return s.add(historyOp{Kind: callDescribe, Lane: 101, Limit: limit, Owners: owners, Result: resultOK})
}

func (s *historyScript) set(lane int, data string, version uint64) *historyScript {
	return s.add(historyOp{Kind: callSet, Lane: lane, Process: lane, Data: data, Version: version, Result: resultOK})
}

func (s *historyScript) guarded(lane int, data string, want, version uint64, r callResult) *historyScript {
	return s.add(historyOp{Kind: callSet, Lane: lane, Process: lane, Data: data, Guarded: true, Want: want, Version: version, Result: r})
}

func (s *historyScript) get(k callKind, lane int, data string, version uint64) *historyScript {
	return s.add(historyOp{Kind: k, Lane: lane, Process: lane, Data: data, Version: version, Result: resultOK})
}

// stories is a history and whether it is possible. Each impossible one differs little from a
// possible one.
var stories = []struct {
	name string
	good bool
	s    *historyScript
}{
	{"one after the other", true, new(historyScript).create(1).acquire(1, 1, 5).release(1, 5).acquire(2, 1, 6).describe(1, historyEntry{2, 1, 6}).release(2, 6).describe(1)},
	{"two at once", false, new(historyScript).create(1).acquire(1, 1, 5).acquire(2, 1, 6).release(1, 5)},
	{"two at once, and there is room", true, new(historyScript).create(2).acquire(1, 1, 5).acquire(2, 1, 6).release(1, 5)},
	{"one more than the limit", false, new(historyScript).create(2).acquire(1, 2, 5).acquire(2, 1, 6)},
	{"a token twice", false, new(historyScript).create(1).acquire(1, 1, 5).release(1, 5).acquire(2, 1, 5)},
	{"a token that goes back", false, new(historyScript).create(1).acquire(1, 1, 5).release(1, 5).acquire(2, 1, 4)},
	{"a release of nothing", false, new(historyScript).create(1).acquire(1, 1, 5).release(1, 5).release(1, 5)},
	{"a release under an old token", false, new(historyScript).create(1).acquire(1, 1, 5).release(1, 5).acquire(1, 1, 6).release(1, 5)},
	{"granted while another is asked to wait", true, new(historyScript).create(1).acquire(1, 1, 5).
		add(historyOp{Kind: callAcquire, Session: 2, Count: 1, Token: 6, Call: 25, Return: 60, Result: resultOK}).
		add(historyOp{Kind: callRelease, Session: 1, Token: 5, Call: 40, Return: 45, Result: resultOK})},
	{"granted before the other's release began", false, new(historyScript).create(1).acquire(1, 1, 5).
		add(historyOp{Kind: callAcquire, Session: 2, Count: 1, Token: 6, Call: 25, Return: 38, Result: resultOK}).
		add(historyOp{Kind: callRelease, Session: 1, Token: 5, Call: 40, Return: 45, Result: resultOK})},
	{"a try at what is held", true, new(historyScript).create(1).acquire(1, 1, 5).try(2, 1, resultNotAcquired)},
	{"a try at what is free", false, new(historyScript).create(1).acquire(1, 1, 5).release(1, 5).try(2, 1, resultNotAcquired)},
	{"the session's end frees", true, new(historyScript).create(1).acquire(1, 1, 5).gone(1, 30, 50).add(historyOp{Kind: callAcquire, Session: 2, Count: 1, Token: 6, Call: 41, Result: resultOK})},
	{"a living session's lock is given away", false, new(historyScript).create(1).acquire(1, 1, 5).
		add(historyOp{Kind: callAcquire, Session: 2, Count: 1, Token: 6, Call: 25, Return: 30, Result: resultOK}).gone(1, 40, 50)},
	{"an acquire nobody heard of again has it", true, new(historyScript).create(1).
		add(historyOp{Kind: callAcquire, Session: 1, Count: 1, Result: resultUnknown}).try(2, 1, resultNotAcquired)},
	{"an acquire nobody heard of again has it not", true, new(historyScript).create(1).
		add(historyOp{Kind: callAcquire, Session: 1, Count: 1, Result: resultUnknown}).try(2, 1, resultOK)},
	{"shown: an owner that left", false, new(historyScript).create(1).acquire(1, 1, 5).release(1, 5).describe(1, historyEntry{1, 1, 5})},
	{"shown: not yet the owner of a grant that was told", false, new(historyScript).create(1).acquire(1, 1, 5).describe(1)},
	{"a queue jumped", false, new(historyScript).create(1).acquire(1, 1, 5).
		add(historyOp{Kind: callAcquire, Session: 2, Count: 1, Call: 25, Return: 100, Queued: 28, Order: 6, Token: 6, Result: resultOK}).
		add(historyOp{Kind: callAcquire, Session: 3, Count: 1, Call: 32, Return: 50, Queued: 35, Order: 7, Token: 7, Result: resultOK}).
		add(historyOp{Kind: callRelease, Session: 3, Token: 7, Call: 52, Return: 55, Result: resultOK}).
		add(historyOp{Kind: callRelease, Session: 1, Token: 5, Call: 60, Return: 65, Result: resultOK})},
	{"a fresh lock's end deletes it", true, new(historyScript).
		add(historyOp{Kind: callAcquire, Session: 1, Count: math.MaxUint64, Token: 3, Ephemeral: true, Result: resultOK}).release(1, 3).
		add(historyOp{Kind: callDescribe, Lane: 101, Result: resultNotFound})},
	{"deleted while it is held", false, new(historyScript).create(1).acquire(1, 1, 5).add(historyOp{Kind: callDelete, Lane: 100, Result: resultOK})},
	{"made twice", false, new(historyScript).create(1).create(1)},

	{"versions one by one", true, new(historyScript).set(1, "a", 1).guarded(2, "b", 1, 2, resultOK).guarded(1, "c", 1, 0, resultRefused).get(callGet, 3, "b", 2)},
	{"versions with gaps", true, new(historyScript).set(1, "a", 4).guarded(2, "b", 4, 9, resultOK).guarded(1, "c", 5, 0, resultRefused).get(callGet, 3, "b", 9)},
	{"a version that does not rise", false, new(historyScript).set(1, "a", 4).set(1, "b", 4)},
	{"the version of a write nobody heard of is that of a read", false, new(historyScript).set(1, "a", 4).
		add(historyOp{Kind: callSet, Lane: 2, Data: "b", Result: resultUnknown}).get(callGet, 3, "b", 7).get(callGet, 3, "b", 8)},
	{"the version of a write nobody heard of is not that before it", false, new(historyScript).set(1, "a", 4).
		add(historyOp{Kind: callSet, Lane: 2, Data: "b", Result: resultUnknown}).get(callGet, 3, "b", 4)},
	{"a write that was acknowledged is lost", false, new(historyScript).set(1, "a", 1).set(2, "b", 2).get(callGet, 3, "a", 1)},
	{"a strict read that is late", false, new(historyScript).set(1, "a", 1).get(callGet, 3, "a", 1).set(1, "b", 2).get(callGet, 3, "a", 1)},
	{"compare and set of the same version twice", false, new(historyScript).set(1, "a", 1).guarded(1, "b", 1, 2, resultOK).guarded(2, "c", 1, 2, resultOK)},
	{"a compare and set that is refused for nothing", false, new(historyScript).set(1, "a", 1).guarded(1, "b", 1, 0, resultRefused)},
	{"a write nobody heard of again is seen", true, new(historyScript).set(1, "a", 1).add(historyOp{Kind: callSet, Lane: 2, Data: "b", Result: resultUnknown}).get(callGet, 3, "b", 2)},
	{"it is seen, and then not", false, new(historyScript).set(1, "a", 1).add(historyOp{Kind: callSet, Lane: 2, Data: "b", Result: resultUnknown}).get(callGet, 3, "b", 2).get(callGet, 3, "a", 1)},
	{"relaxed reads lag", true, new(historyScript).set(1, "a", 1).set(1, "b", 2).get(callRelaxedGet, 3, "a", 1).get(callRelaxedGet, 3, "b", 2)},
	{"relaxed reads go back", false, new(historyScript).set(1, "a", 1).set(1, "b", 2).get(callRelaxedGet, 3, "b", 2).get(callRelaxedGet, 3, "a", 1)},
	{"a client reads relaxed what it wrote", true, new(historyScript).set(1, "a", 1).set(1, "b", 2).get(callRelaxedGet, 1, "b", 2)},
	{"a client reads relaxed what was before its own write", false, new(historyScript).set(1, "a", 1).set(1, "b", 2).get(callRelaxedGet, 1, "a", 1)},
	{"a client reads relaxed what was before its own strict read", false, new(historyScript).set(1, "a", 1).set(1, "b", 2).get(callGet, 3, "b", 2).get(callRelaxedGet, 3, "a", 1)},
	{"a relaxed read of what was never written", false, new(historyScript).set(1, "a", 1).get(callRelaxedGet, 3, "z", 1)},

	{"a node is made, dropped and made", true,
		new(historyScript).add(historyOp{Kind: callCreateNode, Token: 4, Result: resultOK}).add(historyOp{Kind: callDropNode, Result: resultOK}).
			add(historyOp{Kind: callCreateNode, Token: 7, Result: resultOK}).add(historyOp{Kind: callCreateNode, Result: resultExists})},
	{"a node is made again by the same call, which another drop came into", true,
		new(historyScript).add(historyOp{Call: 1, Return: 10, Kind: callCreateNode, Token: 5, Result: resultOK}).
			add(historyOp{Call: 2, Return: 3, Kind: callCreateNode, Result: resultExists}).add(historyOp{Call: 4, Return: 5, Kind: callDropNode,
			Result: resultOK}).add(historyOp{Call: 6, Return: 7, Kind: callCreateNode, Result: resultExists})},
	{"a node is there again after its drop, and nobody makes it", false,
		new(historyScript).add(historyOp{Call: 1, Return: 3, Kind: callCreateNode, Token: 5, Result: resultOK}).
			add(historyOp{Call: 4, Return: 5, Kind: callDropNode, Result: resultOK}).add(historyOp{Call: 6, Return: 7, Kind: callCreateNode, Result: resultExists})},
	{"a node's id comes back", false, new(historyScript).add(historyOp{Kind: callCreateNode, Token: 4, Result: resultOK}).add(historyOp{Kind: callDropNode, Result: resultOK}).
		add(historyOp{Kind: callCreateNode, Token: 4, Result: resultOK})},
	{"a node is made twice", false, new(historyScript).add(historyOp{Kind: callCreateNode, Token: 4, Result: resultOK}).add(historyOp{Kind: callCreateNode, Token: 5, Result: resultOK})},

	{"beliefs one after the other", true,
		new(historyScript).create(1).acquire(1, 1, 5).add(historyOp{Kind: callBelieved, Session: 1, Count: 1, Token: 5, Return: 40}).
			add(historyOp{Kind: callRelease, Session: 1, Token: 5, Call: 41, Result: resultOK})},
	{"two believe", false, new(historyScript).create(1).add(historyOp{Kind: callBelieved, Session: 1, Count: 1, Token: 5, Call: 20, Return: 40}).
		add(historyOp{Kind: callBelieved, Session: 2, Count: 1, Token: 6, Call: 39, Return: 50})},
	{"writes under rising tokens", true,
		new(historyScript).add(historyOp{Kind: callFenced, Token: 5, Result: resultOK}).add(historyOp{Kind: callFenced, Token: 6, Seen: 5, Result: resultOK}).
			add(historyOp{Kind: callFenced, Token: 5, Seen: 6, Result: resultRefused})},
	{"a write under a lower token", false, new(historyScript).add(historyOp{Kind: callFenced, Token: 6, Result: resultOK}).add(historyOp{Kind: callFenced, Token: 5, Seen: 6, Result: resultOK})},
	{"a holder is refused", false, new(historyScript).add(historyOp{Kind: callFenced, Token: 6, Result: resultOK}).add(historyOp{Kind: callFenced, Token: 5, Count: 1, Seen: 6, Result: resultRefused})},
}

func TestStories(t *testing.T) {
	for _, c := range stories {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			got := checkHistory(c.s.ops, historyOptions{Pictures: dir})
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
	w := newHistoryWriter(&b)
	first, err := w.Begin(historyOp{Kind: callSet, Name: "a", Call: 1, Data: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Begin(historyOp{Kind: callGet, Name: "a", Call: 2}); err != nil {
		t.Fatal(err)
	}
	if err := w.End(first, historyOp{Kind: callSet, Name: "a", Call: 1, Return: 3, Data: "x", Version: 1, Result: resultOK}); err != nil {
		t.Fatal(err)
	}
	b.WriteString(`{"id":3,"k":"ge`) // its writer was killed
	ops, err := readHistory(&b)
	if err != nil || len(ops) != 2 {
		t.Fatalf("%v %v", ops, err)
	}
	if o := ops[0]; o.Result != resultOK || o.Return != 3 || o.Version != 1 {
		t.Errorf("%+v", o)
	}
	if o := ops[1]; o.Result != resultUnknown || o.Return != neverReturned {
		t.Errorf("%+v", o)
	}
	if _, err := readHistory(strings.NewReader("what is this\n")); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Error(err)
	}
}

func TestSummary(t *testing.T) {
	s := new(historyScript).create(1).acquire(1, 1, 5).add(historyOp{Kind: callRelease, Session: 1, Token: 5,
		Result: resultUnknown}).add(historyOp{Kind: callBelieved, Session: 1, Count: 1, Token: 5})
	got := checkHistory(s.ops, historyOptions{})
	if got.Names != 1 || got.Ops != 4 || got.Unknown != 1 || got.ByResult[resultOK] != 2 || got.ByKind[callBelieved] != 1 ||
		got.Longest != 5 || got.MaxPerName != 4 {
		t.Fatalf("%+v", got)
	}
}
