package wal

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestCommitIndexIsNotSynced counts the writes and syncs of updates.
func TestCommitIndexIsNotSynced(t *testing.T) {
	d := newDisk()
	l := openOn(t, d)
	k := key{1, 1}
	save(t, l, updateOf(k, 1, entriesOf(1, 1, 1, 3)))
	for _, c := range []struct {
		name          string
		u             pb.Update
		writes, syncs int
	}{
		{"entries", updateOf(k, 1, entriesOf(2, 1, 1, 3)), 2, 1}, // the frame and the mark
		{"the same state", updateOf(k, 1, nil), 0, 0},
		{"commit", pb.Update{ShardID: 1, ReplicaID: 1, State: pb.State{Term: 1, Vote: 1, Commit: 2}}, 0, 0},
		{"vote", pb.Update{ShardID: 1, ReplicaID: 1, State: pb.State{Term: 1, Vote: 2, Commit: 2}}, 2, 1},
		{"term", pb.Update{ShardID: 1, ReplicaID: 1, State: pb.State{Term: 2, Vote: 2, Commit: 2}}, 2, 1},
	} {
		writes, syncs := d.writes, d.syncs
		save(t, l, c.u)
		if w, s := d.writes-writes, d.syncs-syncs; w != c.writes || s != c.syncs {
			t.Errorf("%s: %d writes and %d syncs", c.name, w, s)
		}
	}
}

// TestWokenBeforeSync: on one processor, what was woken before a save of entries that it commits
// runs before the sync, which may block the thread, unless they are few. The runtime runs another
// goroutine first now and then.
func TestWokenBeforeSync(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	l := openOn(t, newDisk())
	wake, done := make(chan struct{}), make(chan struct{})
	var ran atomic.Int64
	go func() {
		defer close(done)
		for range wake {
			ran.Add(1)
		}
	}()
	const times = 200
	index := uint64(0)
	for _, c := range []struct {
		size  int
		early bool
	}{{3, false}, {fewCommands, true}} {
		early := 0
		for range times {
			index++
			u := updateOf(key{1, 1}, 1, entriesOf(index, 1, 1, c.size))
			u.CommittedEntries = u.EntriesToSave // as in a group of one
			wake <- struct{}{}
			save(t, l, u) // blocks nowhere on this disk
			if ran.Load() == int64(index) {
				early++
			}
			for ran.Load() < int64(index) { // it waits again before it is woken again
				runtime.Gosched()
			}
		}
		if c.early != (early > times/2) {
			t.Errorf("entries of %d bytes: %d of %d woken goroutines ran before the sync", c.size, early, times)
		}
	}
	close(wake)
	<-done
}

// TestGroupCommit holds a sync. The calls that come meanwhile share one frame and one sync.
func TestGroupCommit(t *testing.T) {
	d := newDisk()
	l := openOn(t, d)
	save(t, l, updateOf(key{1, 1}, 1, entriesOf(1, 1, 1, 3)))
	hold := make(chan error)
	d.mu.Lock()
	d.holdSync, d.syncs, d.writes = hold, 0, 0
	d.mu.Unlock()
	var calls sync.WaitGroup
	call := func(shard uint64) {
		calls.Go(func() { save(t, l, updateOf(key{shard, 1}, 1, entriesOf(2, 1, 1, 3))) })
	}
	queued := func(n int) {
		for {
			l.mu.Lock()
			ok := l.writing && len(l.queue) == n
			l.mu.Unlock()
			if ok {
				return
			}
			runtime.Gosched()
		}
	}
	call(1)
	queued(0)
	for shard := range uint64(9) {
		call(shard + 2)
	}
	queued(9)
	hold <- nil
	hold <- nil
	calls.Wait()
	if d.syncs != 2 || d.writes != 4 { // frames and marks
		t.Errorf("%d syncs, %d writes", d.syncs, d.writes)
	}
	d.holdSync = nil
	l = openOn(t, d)
	for shard := range uint64(10) {
		if e, _, err := l.IterateEntries(nil, 0, shard+1, 1, 2, 3, 0); err != nil || len(e) != 1 {
			t.Error(shard, err)
		}
	}
}

// TestFullDisk: nothing is acknowledged after a write has failed, also if there is room again.
func TestFullDisk(t *testing.T) {
	for room := 0; room < 400; room += form.Size(5, 1, 1) {
		h := newHistory(uint64(room))
		d := newDisk()
		d.direct = room%2 == 0
		l := openOn(t, d)
		possible := []model{h.m.clone()}
		for n := 0; ; n++ {
			if n == 20 {
				d.room = room * 20
			}
			c := h.next()
			possible = append(possible, h.m.clone())
			if err := c.run(l); err != nil {
				if n < 20 || !errors.Is(err, syscall.ENOSPC) {
					t.Fatal(err)
				}
				break
			}
			if c.durable {
				possible = possible[len(possible)-1:]
			}
		}
		d.room = -1
		if err := l.SaveBootstrapInfo(1, 1, pb.Bootstrap{}); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("written after a failure: %v", err)
		}
		l = openOn(t, d)
		got := text(t, l)
		if !slices.ContainsFunc(possible, func(m model) bool { return m.text() == got }) {
			t.Fatalf("room %d:\n%s", room, got)
		}
	}
}

// TestFailedSync: a sync that failed is not tried again, since a second one may lie.
func TestFailedSync(t *testing.T) {
	d := newDisk()
	l := openOn(t, d)
	save(t, l, updateOf(key{1, 1}, 1, entriesOf(1, 1, 1, 3)))
	d.badSync = syscall.EIO
	if err := l.SaveRaftState([]pb.Update{updateOf(key{1, 1}, 1, entriesOf(2, 1, 1, 3))}, 1); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	d.badSync = nil
	if err := l.SaveRaftState([]pb.Update{updateOf(key{1, 1}, 1, entriesOf(2, 1, 1, 3))}, 1); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
}

// TestRestartAfterFailedSync: what a start finds is on disk then, although the kernel took what was
// written before a failed sync for clean.
func TestRestartAfterFailedSync(t *testing.T) {
	for n := range 60 {
		d := newDisk()
		d.direct = n%2 == 0
		l := openOn(t, d)
		for i := range n {
			save(t, l, updateOf(key{1, 1}, 1, entriesOf(uint64(1+i), 1, 1, 400)))
		}
		d.badSync = syscall.EIO
		if err := l.SaveRaftState([]pb.Update{updateOf(key{1, 1}, 2, entriesOf(uint64(1+n), 1, 2, 400))}, 1); !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
		d.badSync = nil
		found := openOn(t, d).replicas
		for seed := range uint64(20) {
			l := openOn(t, d.crash(rand.New(rand.NewPCG(seed, 1))))
			if !reflect.DeepEqual(l.replicas, found) {
				t.Fatalf("after %d entries: %v, want %v", n, l.replicas, found)
			}
		}
	}
}
