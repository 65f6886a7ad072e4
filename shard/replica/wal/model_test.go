package wal

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/signalbox-dev/signalbox/server/servertest/seeds"
)

// model is the naive model of a log store.
type model map[key]*modelLog

type modelLog struct {
	state     pb.State
	hasState  bool
	snapshot  pb.Snapshot
	bootstrap *pb.Bootstrap
	entries   []pb.Entry
}

func (m model) clone() model {
	c := make(model, len(m))
	for k, l := range m {
		copied := *l
		copied.entries = slices.Clone(l.entries)
		c[k] = &copied
	}
	return c
}

func (m model) log(k key) *modelLog {
	if m[k] == nil {
		m[k] = new(modelLog)
	}
	return m[k]
}

func (l *modelLog) last() uint64 {
	if len(l.entries) == 0 {
		return l.snapshot.Index
	}
	return l.entries[len(l.entries)-1].Index
}

func (m model) save(u *pb.Update) {
	l := m.log(key{u.ShardID, u.ReplicaID})
	if !pb.IsEmptyState(u.State) {
		l.state, l.hasState = u.State, true
	}
	if u.Snapshot.Index > l.snapshot.Index {
		l.snapshot, l.entries = u.Snapshot, nil
	}
	if len(u.EntriesToSave) > 0 {
		l.entries = slices.DeleteFunc(l.entries, func(e pb.Entry) bool { return e.Index >= u.EntriesToSave[0].Index })
		l.entries = append(l.entries, u.EntriesToSave...)
	}
}

func (l *modelLog) cut(index uint64) {
	l.entries = slices.DeleteFunc(l.entries, func(e pb.Entry) bool { return e.Index <= index })
}

// text describes everything that a model has of replicas.
func (m model) text() string {
	var b strings.Builder
	for _, k := range slices.SortedFunc(maps.Keys(m), compareKeys) {
		l := m[k]
		if l.bootstrap == nil {
			continue
		}
		snapshot, state := l.snapshot, l.state
		state.Commit = max(state.Commit, snapshot.Index)
		describe(&b, k, *l.bootstrap, snapshot, state, l.hasState, l.entries)
	}
	return b.String()
}

func compareKeys(a, b key) int {
	if a.shard != b.shard {
		return int(a.shard) - int(b.shard)
	}
	return int(a.replica) - int(b.replica)
}

func describe(
	b *strings.Builder, k key, boot pb.Bootstrap, s pb.Snapshot, state pb.State, hasState bool, entries []pb.Entry,
) {
	fmt.Fprintf(b, "%v join %v snapshot %d/%d %q", k, boot.Join, s.Index, s.Term, s.Filepath)
	if hasState {
		fmt.Fprintf(b, " state %d %d %d", state.Term, state.Vote, state.Commit)
	}
	for _, e := range entries {
		fmt.Fprintf(b, " %d/%d:%x", e.Index, e.Term, e.Cmd)
	}
	b.WriteString("\n")
}

// text reads the same from a store.
func text(t testing.TB, db raftio.ILogDB) string {
	t.Helper()
	var b strings.Builder
	nodes, err := db.ListNodeInfo()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		boot, err := db.GetBootstrapInfo(n.ShardID, n.ReplicaID)
		if err != nil {
			t.Fatal(err)
		}
		snapshot, err := db.GetSnapshot(n.ShardID, n.ReplicaID)
		if err != nil {
			t.Fatal(err)
		}
		state, err := db.ReadRaftState(n.ShardID, n.ReplicaID, 0)
		hasState := err == nil
		if err != nil && err != raftio.ErrNoSavedLog {
			t.Fatal(err)
		}
		var entries []pb.Entry
		if hasState && state.EntryCount > 0 {
			entries, _, err = db.IterateEntries(nil, 0, n.ShardID, n.ReplicaID, state.FirstIndex,
				state.FirstIndex+state.EntryCount, math.MaxUint64)
			if err != nil {
				t.Fatal(err)
			}
			if uint64(len(entries)) != state.EntryCount {
				t.Fatalf("%d entries from %d on, want %d", len(entries), state.FirstIndex, state.EntryCount)
			}
		}
		describe(&b, key{n.ShardID, n.ReplicaID}, boot, snapshot, state.State, hasState, entries)
	}
	return b.String()
}

// history makes random calls as the engine may make them, and keeps the model.
type history struct {
	r       *rand.Rand
	m       model
	keys    []key
	replica uint64 // the next replica's id
	big     int    // length of the largest entries
}

func newHistory(seed uint64) *history {
	h := &history{r: rand.New(rand.NewPCG(seed, 7)), m: make(model), replica: 10, big: 400}
	h.keys = []key{{1, 1}, {2, 1}, {2, 2}, {9, 3}}
	return h
}

// call is a call of the store, and whether it is durable when it returns.
type call struct {
	name    string
	run     func(db raftio.ILogDB) error
	durable bool
}

func (h *history) entries(from uint64, n int, term uint64) (list []pb.Entry) {
	for i := range n {
		cmd := make([]byte, h.r.IntN(40))
		if h.r.IntN(10) == 0 {
			cmd = make([]byte, h.r.IntN(h.big)+1)
		}
		for i := range cmd {
			cmd[i] = byte(h.r.Uint32())
		}
		list = append(list, pb.Entry{Index: from + uint64(i), Term: term, Cmd: cmd})
	}
	return list
}

// next applies a random call to the model and returns it.
func (h *history) next() call {
	n := h.r.IntN(len(h.keys))
	k := h.keys[n]
	l := h.m[k]
	if l == nil || l.bootstrap == nil {
		b := pb.Bootstrap{Join: h.r.IntN(2) == 0, Type: pb.ConcurrentStateMachine}
		h.m.log(k).bootstrap = &b
		return call{"bootstrap", func(db raftio.ILogDB) error { return db.SaveBootstrapInfo(k.shard, k.replica, b) },
			true}
	}
	snapshot := func(index, term uint64) pb.Snapshot {
		return pb.Snapshot{Index: index, Term: term, ShardID: k.shard, Type: pb.ConcurrentStateMachine,
			Filepath: fmt.Sprint("file ", index)}
	}
	switch do := h.r.IntN(100); {
	case do < 45 || !l.hasState: // append, some of several replicas
		var updates []pb.Update
		for i := range 1 + h.r.IntN(2) {
			k := h.keys[(n+i)%len(h.keys)]
			l := h.m[k]
			if l == nil || l.bootstrap == nil {
				continue
			}
			u := pb.Update{ShardID: k.shard, ReplicaID: k.replica, State: l.state}
			if h.r.IntN(4) == 0 || u.State.Term == 0 {
				u.State.Term++
				u.State.Vote = h.r.Uint64N(3)
			}
			u.EntriesToSave = h.entries(l.last()+1, 1+h.r.IntN(4), u.State.Term)
			updates = append(updates, u)
			h.m.save(&updates[len(updates)-1])
		}
		return call{"append", func(db raftio.ILogDB) error { return db.SaveRaftState(updates, 1) }, true}
	case do < 50: // a vote
		u := pb.Update{ShardID: k.shard, ReplicaID: k.replica, State: l.state}
		if h.r.IntN(2) == 0 {
			u.State.Term++
		}
		u.State.Vote++
		h.m.save(&u)
		return call{"vote", func(db raftio.ILogDB) error { return db.SaveRaftState([]pb.Update{u}, 1) }, true}
	case do < 60: // only the commit index
		u := pb.Update{ShardID: k.shard, ReplicaID: k.replica, State: l.state}
		u.State.Commit = max(u.State.Commit, l.last())
		h.m.save(&u)
		return call{"commit", func(db raftio.ILogDB) error { return db.SaveRaftState([]pb.Update{u}, 1) }, false}
	case do < 70 && len(l.entries) > 1: // a new leader's entries replace some
		keep := 1 + h.r.IntN(len(l.entries)-1)
		u := pb.Update{ShardID: k.shard, ReplicaID: k.replica, State: l.state}
		u.State.Term++
		u.EntriesToSave = h.entries(l.entries[keep].Index, 1+h.r.IntN(3), u.State.Term)
		h.m.save(&u)
		return call{"replace", func(db raftio.ILogDB) error { return db.SaveRaftState([]pb.Update{u}, 1) }, true}
	case do < 75: // a leader's snapshot, with or without entries behind it
		u := pb.Update{ShardID: k.shard, ReplicaID: k.replica, State: l.state}
		u.State.Term++
		u.Snapshot = snapshot(max(l.last(), l.snapshot.Index)+1+h.r.Uint64N(400), u.State.Term)
		u.State.Commit = u.Snapshot.Index
		if h.r.IntN(2) == 0 {
			u.EntriesToSave = h.entries(u.Snapshot.Index+1, 1+h.r.IntN(3), u.State.Term)
		}
		h.m.save(&u)
		return call{"install", func(db raftio.ILogDB) error { return db.SaveRaftState([]pb.Update{u}, 1) }, true}
	case do < 82 && len(l.entries) > 0: // an own snapshot
		e := l.entries[h.r.IntN(len(l.entries))]
		u := pb.Update{ShardID: k.shard, ReplicaID: k.replica, Snapshot: snapshot(e.Index, e.Term)}
		durable := u.Snapshot.Index > l.snapshot.Index
		if durable {
			l.snapshot = u.Snapshot
		}
		return call{"snapshot", func(db raftio.ILogDB) error { return db.SaveSnapshots([]pb.Update{u}) }, durable}
	case do < 94 && l.snapshot.Index > 0: // the log is compacted
		to := l.snapshot.Index - h.r.Uint64N(min(l.snapshot.Index, 5)+1)
		l.cut(to)
		return call{"compact", func(db raftio.ILogDB) error {
			if err := db.RemoveEntriesTo(k.shard, k.replica, to); err != nil {
				return err
			}
			_, err := db.CompactEntriesTo(k.shard, k.replica, to)
			return err
		}, false}
	case do == 94:
		delete(h.m, k)
		h.replica++
		h.keys[n].replica = h.replica // the id of a replica never comes back
		return call{"remove", func(db raftio.ILogDB) error { return db.RemoveNodeData(k.shard, k.replica) }, true}
	case do == 95:
		s := snapshot(max(1, l.last()/2), 1+l.state.Term/2)
		h.m[k] = &modelLog{snapshot: s, state: pb.State{Term: s.Term, Commit: s.Index},
			hasState: true, bootstrap: &pb.Bootstrap{Join: true}}
		return call{"import", func(db raftio.ILogDB) error { return db.ImportSnapshot(s, k.replica) }, true}
	}
	return call{"nothing", func(raftio.ILogDB) error { return nil }, false}
}

func openOn(t testing.TB, d *disk) *Log {
	t.Helper()
	l, err := open(testConfig(d))
	if err != nil {
		t.Fatal(err)
	}
	l.movePause = 0
	return l
}

func testConfig(d *disk) Config {
	return Config{Dir: "/wal", FS: d, Segment: 3 * headerSize, Logger: slog.New(slog.DiscardHandler),
		openDirect: d.openDirect}
}

// TestModel compares the log with the model, with restarts and maintenance in between.
func TestModel(t *testing.T) {
	for seed := range seeds.Of(t, 12, 12) {
		h := newHistory(seed)
		d := newDisk()
		d.direct = seed%2 == 0
		l := openOn(t, d)
		most := 0
		possible := []model{h.m.clone()} // after a kill: since the last call that was durable
		for range 400 {
			c := h.next()
			if err := c.run(l); err != nil {
				t.Fatalf("seed %d: %s: %v", seed, c.name, err)
			}
			possible = append(possible, h.m.clone())
			if c.durable {
				possible = possible[len(possible)-1:]
			}
			switch h.r.IntN(20) {
			case 0:
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				l = openOn(t, d)
				possible = possible[len(possible)-1:]
			case 1:
				if err := l.work(); err != nil {
					t.Fatal(err)
				}
			case 2: // the process is killed
				l = openOn(t, d)
				got := text(t, l)
				at := slices.IndexFunc(possible, func(m model) bool { return m.text() == got })
				if at < 0 {
					t.Fatalf("seed %d, killed after %s:\n%s\nis none of %d possible logs", seed, c.name, got, len(possible))
				}
				h.m, possible = possible[at].clone(), possible[at:at+1]
			}
			if h.r.IntN(4) == 0 {
				if got, want := text(t, l), h.m.text(); got != want {
					t.Fatalf("seed %d, after %s:\n%s\nwant\n%s", seed, c.name, got, want)
				}
			}
			most = max(most, len(l.segments))
		}
		if most < 4 {
			t.Errorf("seed %d had %d segments only", seed, most)
		}
		if l.first == 1 {
			t.Errorf("seed %d has dropped no segment", seed)
		}
	}
}

// TestCrash loses power at any operation of the disk. What is left is the log after some call, and
// no call that was durable when it returned is missing. It goes on from there, several times.
func TestCrash(t *testing.T) {
	runs, moved, crashes := 0, 0, 0
	for seed := range seeds.Of(t, 30, 120) {
		runs++
		h := newHistory(seed)
		d := newDisk()
		d.direct = seed%2 == 0
		for range 4 {
			d.ops, d.dieAt = 0, 1+h.r.IntN(300)
			l, err := open(testConfig(d))
			possible := []model{h.m.clone()}
			if err == nil {
				l.movePause = 0
				for err == nil {
					c := h.next()
					possible = append(possible, h.m.clone())
					if err = c.run(l); err == nil && c.durable {
						possible = possible[len(possible)-1:]
					}
					if err == nil && h.r.IntN(8) == 0 {
						before := l.first
						err = l.work()
						moved += int(l.first - before)
					}
				}
			}
			crashes++
			if h.r.IntN(3) == 0 { // the process is killed; what it wrote is in the kernel's memory
				d.dieAt = 0
			} else {
				d = d.crash(h.r)
			}
			l, err = open(testConfig(d))
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			got := text(t, l)
			at := slices.IndexFunc(possible, func(m model) bool { return m.text() == got })
			if at < 0 {
				t.Fatalf("seed %d:\n%s\nis none of %d possible logs, the last being\n%s",
					seed, got, len(possible), possible[len(possible)-1].text())
			}
			h.m = possible[at]
			h.keys = nil
			for k := range h.m {
				h.keys = append(h.keys, k)
			}
			for len(h.keys) < 4 {
				h.replica++
				h.keys = append(h.keys, key{uint64(len(h.keys)) + 20, h.replica})
			}
			slices.SortFunc(h.keys, compareKeys)
		}
	}
	t.Logf("%d crashes, %d segments dropped", crashes, moved)
	if moved < runs {
		t.Error("too few segments were dropped")
	}
}
