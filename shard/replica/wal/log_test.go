package wal

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

func entriesOf(from uint64, n int, term uint64, size int) (list []pb.Entry) {
	for i := range n {
		list = append(list,
			pb.Entry{Index: from + uint64(i), Term: term, Cmd: bytes.Repeat([]byte{byte(from) + byte(i)}, size)})
	}
	return list
}

func updateOf(k key, term uint64, list []pb.Entry) pb.Update {
	return pb.Update{ShardID: k.shard, ReplicaID: k.replica, State: pb.State{Term: term, Vote: 1, Commit: 1},
		EntriesToSave: list}
}

func save(t testing.TB, l *Log, u ...pb.Update) {
	t.Helper()
	if err := l.SaveRaftState(u, 1); err != nil {
		t.Fatal(err)
	}
}

func indexes(list []pb.Entry) (is []uint64) {
	for _, e := range list {
		is = append(is, e.Index)
	}
	return is
}

func TestIterateEntries(t *testing.T) {
	d := newDisk()
	l := openOn(t, d)
	k := key{1, 1}
	const size = 700
	save(t, l, updateOf(k, 1, entriesOf(5, 20, 1, size)), updateOf(key{2, 1}, 1, entriesOf(1, 3, 1, 5)))
	save(t, l, updateOf(k, 1, entriesOf(25, 80, 1, 10)))
	one := uint64(entriesOf(5, 1, 1, size)[0].SizeUpperLimit())
	for _, c := range []struct {
		low, high, max uint64
		from, to       uint64 // to 0: none
	}{
		{5, 105, math.MaxUint64, 5, 104},
		{5, 25, math.MaxUint64, 5, 24},
		{7, 8, 0, 7, 7},
		{7, 20, 0, 7, 7},
		{7, 20, one, 7, 8}, // until the size is above
		{7, 20, 3*one - 1, 7, 9},
		{100, 400, math.MaxUint64, 100, 104},
		{1, 8, math.MaxUint64, 0, 0}, // the first one is missing
		{105, 106, math.MaxUint64, 0, 0},
		{9, 9, math.MaxUint64, 0, 0},
	} {
		list, n, err := l.IterateEntries(nil, 0, 1, 1, c.low, c.high, c.max)
		if err != nil {
			t.Fatal(err)
		}
		var want []uint64
		var sizes uint64
		for i := c.from; i <= c.to && c.to > 0; i++ {
			want = append(want, i)
		}
		for _, e := range list {
			sizes += uint64(e.SizeUpperLimit())
		}
		if got := indexes(list); !slices.Equal(got, want) || n != sizes {
			t.Errorf("%+v: %v, %d bytes", c, got, n)
		}
	}
	// What is there already stays, and counts.
	list, _, err := l.IterateEntries(entriesOf(1, 1, 1, 1), 10, 2, 1, 2, 4, 5)
	if err != nil || !slices.Equal(indexes(list), []uint64{1, 2}) {
		t.Error(indexes(list), err)
	}
}

func TestReadRaftState(t *testing.T) {
	l := openOn(t, newDisk())
	k := key{1, 1}
	if _, err := l.ReadRaftState(1, 1, 0); !errors.Is(err, raftio.ErrNoSavedLog) {
		t.Fatal(err)
	}
	if _, err := l.GetBootstrapInfo(1, 1); !errors.Is(err, raftio.ErrNoBootstrapInfo) {
		t.Fatal(err)
	}
	if s, err := l.GetSnapshot(1, 1); err != nil || !pb.IsEmptySnapshot(s) {
		t.Fatal(s, err)
	}
	save(t, l, updateOf(k, 3, nil))
	read := func(snapshot uint64, want raftio.RaftState) {
		t.Helper()
		if got, err := l.ReadRaftState(1, 1, snapshot); err != nil || got != want {
			t.Fatalf("%+v, %v, want %+v", got, err, want)
		}
	}
	s := pb.State{Term: 3, Vote: 1, Commit: 1}
	read(0, raftio.RaftState{State: s})
	save(t, l, updateOf(k, 3, entriesOf(1, 10, 3, 3)))
	read(0, raftio.RaftState{State: s, FirstIndex: 1, EntryCount: 10})
	read(4, raftio.RaftState{State: s, FirstIndex: 4, EntryCount: 7})
	read(10, raftio.RaftState{State: s, FirstIndex: 10})
	if err := l.RemoveEntriesTo(1, 1, 6); err != nil {
		t.Fatal(err)
	}
	read(0, raftio.RaftState{State: s, FirstIndex: 7, EntryCount: 4})
	// A snapshot that was saved before the commit index that it follows from.
	if err := l.SaveSnapshots([]pb.Update{{ShardID: 1, ReplicaID: 1, Snapshot: pb.Snapshot{Index: 9, Term: 3}}}); err != nil {
		t.Fatal(err)
	}
	s.Commit = 9
	read(9, raftio.RaftState{State: s, FirstIndex: 9, EntryCount: 2})
	// An older one is ignored.
	if err := l.SaveSnapshots([]pb.Update{{ShardID: 1, ReplicaID: 1, Snapshot: pb.Snapshot{Index: 8, Term: 3}}}); err != nil {
		t.Fatal(err)
	}
	if s, err := l.GetSnapshot(1, 1); err != nil || s.Index != 9 {
		t.Fatal(s, err)
	}
}

// TestGap: entries that do not follow the log replace it. The engine does not do that.
func TestGap(t *testing.T) {
	d := newDisk()
	l := openOn(t, d)
	k := key{1, 1}
	save(t, l, updateOf(k, 1, entriesOf(1, 5, 1, 3)))
	save(t, l, updateOf(k, 1, entriesOf(9, 2, 1, 3)))
	for range 2 {
		if s, err := l.ReadRaftState(1, 1, 0); err != nil || s.FirstIndex != 9 || s.EntryCount != 2 {
			t.Fatal(s, err)
		}
		l = openOn(t, d)
	}
	u := updateOf(k, 1, entriesOf(3, 2, 1, 3))
	u.EntriesToSave[1].Index = 7
	if err := l.SaveRaftState([]pb.Update{u}, 1); err == nil {
		t.Fatal("entries in disorder were saved")
	}
}

// TestConcurrent calls from many goroutines while the maintenance runs.
func TestConcurrent(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{Dir: dir, Segment: 64 << 10, Logger: slog.New(slog.DiscardHandler),
		Failed: func(err error) { t.Error(err) }}
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	rounds := form.Of[uint64](60, 2000)
	var all sync.WaitGroup
	for shard := range uint64(6) {
		k := key{shard + 1, 1}
		stop := make(chan struct{})
		all.Go(func() {
			defer close(stop)
			if err := l.SaveBootstrapInfo(k.shard, 1, pb.Bootstrap{Join: true}); err != nil {
				t.Error(err)
			}
			for i := range rounds {
				first := 1 + i*4
				if err := l.SaveRaftState([]pb.Update{updateOf(k, 1, entriesOf(first, 4, 1, 600))}, k.shard); err != nil {
					t.Error(err)
				}
				if i%16 == 15 && k.shard != 6 { // the last one is never compacted
					u := pb.Update{ShardID: k.shard, ReplicaID: 1, Snapshot: pb.Snapshot{Index: first, Term: 1}}
					if err := errors.Join(l.SaveSnapshots([]pb.Update{u}), l.RemoveEntriesTo(k.shard, 1, first)); err != nil {
						t.Error(err)
					}
				}
			}
		})
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				s, err := l.ReadRaftState(k.shard, 1, 0)
				if err != nil {
					runtime.Gosched()
					continue
				}
				list, _, err := l.IterateEntries(nil, 0, k.shard, 1, s.FirstIndex, s.FirstIndex+s.EntryCount, 20_000)
				if err != nil {
					t.Error(err)
				}
				for _, e := range list {
					if len(e.Cmd) != 600 || e.Cmd[0] != e.Cmd[599] {
						t.Errorf("entry %d is %x", e.Index, e.Cmd)
					}
				}
			}
		})
	}
	all.Wait()
	was := text(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = Open(cfg); err != nil {
		t.Fatal(err)
	}
	if text(t, l) != was {
		t.Error("the log has changed")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
