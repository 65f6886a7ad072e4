package wal

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

// TestMoveOfChangedEntries: entries that changed after the maintenance looked are not moved.
func TestMoveOfChangedEntries(t *testing.T) {
	d := newDisk()
	l := openOn(t, d)
	k := key{1, 1}
	save(t, l, updateOf(k, 1, entriesOf(1, 5, 1, 30)))
	_, list := l.liveIn(1, 1<<20)
	if len(list) != 6 {
		t.Fatal(list)
	}
	o, err := l.move(l.segments[0], list)
	if err != nil {
		t.Fatal(err)
	}
	save(t, l, updateOf(k, 2, entriesOf(3, 1, 2, 8)))
	if err := l.commit(o); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		e, _, err := l.IterateEntries(nil, 0, 1, 1, 1, 9, math.MaxUint64)
		if err != nil || !slices.Equal(indexes(e), []uint64{1, 2, 3}) || e[2].Term != 2 {
			t.Fatal(e, err)
		}
		l = openOn(t, d)
	}
}

// TestMovedEntriesAreRead: entries that were moved are read where they are now, before anything
// else is written.
func TestMovedEntriesAreRead(t *testing.T) {
	d := newDisk()
	l := openOn(t, d)
	save(t, l, updateOf(key{1, 1}, 1, entriesOf(1, 5, 1, 30)))
	_, list := l.liveIn(1, 1<<20)
	o, err := l.move(l.segments[0], list)
	if err == nil {
		err = l.commit(o)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, at := l.liveIn(1, 1<<20); at[len(at)-1].at <= list[len(list)-1].at {
		t.Fatal("nothing was moved")
	}
	if e, _, err := l.IterateEntries(nil, 0, 1, 1, 1, 9, math.MaxUint64); err != nil || len(e) != 5 {
		t.Fatal(e, err)
	}
}

// TestIdleReplica: the records of a replica that is idle move on, and keep no segments.
func TestIdleReplica(t *testing.T) {
	d := newDisk()
	l := openOn(t, d)
	idle, busy := key{1, 1}, key{2, 1}
	for _, k := range []key{idle, busy} {
		if err := l.SaveBootstrapInfo(k.shard, k.replica, pb.Bootstrap{Join: true}); err != nil {
			t.Fatal(err)
		}
	}
	save(t, l, updateOf(idle, 7, entriesOf(1, 6, 7, 40)))
	if err := l.SaveSnapshots([]pb.Update{{ShardID: 1, ReplicaID: 1, Snapshot: pb.Snapshot{Index: 2, Term: 7}}}); err != nil {
		t.Fatal(err)
	}
	var want string
	for i := range uint64(400) {
		save(t, l, updateOf(busy, 1, entriesOf(1+i*5, 5, 1, 100)))
		if err := l.RemoveEntriesTo(2, 1, i*5); err != nil {
			t.Fatal(err)
		}
		if err := l.work(); err != nil {
			t.Fatal(err)
		}
		if n := len(l.segments); n > 3 {
			t.Fatalf("%d segments", n)
		}
		got, _, _ := strings.Cut(text(t, l), "\n")
		if want == "" {
			want = got
		}
		if got != want {
			t.Fatalf("%s\nwant\n%s", got, want)
		}
		if i%50 == 49 {
			l = openOn(t, d)
		}
	}
	if l.first < 20 {
		t.Errorf("the first segment is %d", l.first)
	}
	if n := len(d.now); n > 4 {
		t.Errorf("%d files", n)
	}
}

// TestLongLogIsBounded: beside a long log that is all needed, another one is written and removed.
// The whole is not much longer than twice what is needed.
func TestLongLogIsBounded(t *testing.T) {
	d := newDisk()
	l := openOn(t, d)
	const n = 400
	save(t, l, updateOf(key{1, 1}, 1, entriesOf(1, n/2, 1, 100)))
	save(t, l, updateOf(key{1, 1}, 1, entriesOf(1+n/2, n/2, 1, 100)))
	for i := range uint64(600) {
		save(t, l, updateOf(key{2, 1}, 1, entriesOf(1+i, 1, 1, 1000)))
		if err := errors.Join(l.RemoveEntriesTo(2, 1, i), l.work()); err != nil {
			t.Fatal(err)
		}
		if have, most := int64(len(l.segments))*l.cfg.Segment, 2*l.live+(minFree+3)*l.cfg.Segment; have > most {
			t.Fatalf("%d bytes, at most %d wanted", have, most)
		}
	}
	l = openOn(t, d)
	if list, _, err := l.IterateEntries(nil, 0, 1, 1, 1, n+1, math.MaxUint64); err != nil || len(list) != n {
		t.Fatal(len(list), err)
	}
}

// TestOpenFiles: the files of old segments are closed, and opened again to be read.
func TestOpenFiles(t *testing.T) {
	const n = 3 * maxOpen
	d := newDisk()
	l := openOn(t, d)
	for i := range uint64(n) {
		save(t, l, updateOf(key{1, 1}, 1, entriesOf(1+i, 1, 1, 7000)))
		if err := l.work(); err != nil {
			t.Fatal(err)
		}
		d.checkOpen(t)
	}
	for range 2 {
		list, _, err := l.IterateEntries(nil, 0, 1, 1, 1, n+1, math.MaxUint64)
		if err != nil || len(list) != n || len(l.segments) < n {
			t.Fatal(len(list), len(l.segments), err)
		}
		d.checkOpen(t)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if d.open != 0 {
			t.Fatalf("%d files are open", d.open)
		}
		l = openOn(t, d)
		d.checkOpen(t)
	}
	if err := l.RemoveEntriesTo(1, 1, n-5); err != nil {
		t.Fatal(err)
	}
	if err := l.work(); err != nil {
		t.Fatal(err)
	}
	if len(l.segments) > 10 {
		t.Errorf("%d segments", len(l.segments))
	}
	d.checkOpen(t)
}

func (d *disk) checkOpen(t *testing.T) {
	t.Helper()
	if d.open > maxOpen+2 {
		t.Fatalf("%d files are open", d.open)
	}
}
