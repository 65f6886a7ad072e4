package wal

import (
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/signalbox-dev/signalbox/server/servertest/seeds"
)

// TestConcurrentCrash loses power while several goroutines write and the maintenance runs. Each
// replica's log then is a prefix of what was written to it, and has all that was acknowledged.
func TestConcurrentCrash(t *testing.T) {
	dropped := 0
	for seed := range seeds.Of(t, 10, 40) {
		r := rand.New(rand.NewPCG(seed, 3))
		d := newDisk()
		d.direct = seed%2 == 0
		var acked, cut [5]atomic.Uint64 // by replica: the last entry, the last removed one
		for range 3 {
			d.ops, d.dieAt = 0, 50+r.IntN(1500)
			l, err := open(testConfig(d))
			if err == nil {
				l.movePause = 0
				var writers, maintenance sync.WaitGroup
				stop := make(chan struct{})
				maintenance.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						l.changed.Store(true)
						_ = l.work()
					}
				})
				for i := range acked {
					first := acked[i].Load() + 1
					if s, err := l.ReadRaftState(uint64(i+1), 1, 0); err == nil && s.EntryCount > 0 {
						first = s.FirstIndex + s.EntryCount
					}
					writers.Go(func() { writeUntilDead(l, uint64(i+1), first, &acked[i], &cut[i]) })
				}
				writers.Wait()
				close(stop)
				maintenance.Wait()
				dropped += int(l.first - 1)
			}
			d = d.crash(r)
			l, err = open(testConfig(d))
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			for i := range acked {
				checkWritten(t, seed, l, uint64(i+1), acked[i].Load(), cut[i].Load())
			}
		}
	}
	t.Logf("%d segments dropped", dropped)
}

// writeUntilDead appends entries, and removes old ones of all replicas but the first.
func writeUntilDead(l *Log, shard, index uint64, acked, cut *atomic.Uint64) {
	if err := l.SaveBootstrapInfo(shard, 1, pb.Bootstrap{Join: true}); err != nil {
		return
	}
	for {
		n := 1 + int(index%3)
		if l.SaveRaftState([]pb.Update{updateOf(key{shard, 1}, 1, entriesOf(index, n, 1, 90))}, shard) != nil {
			return
		}
		index += uint64(n)
		acked.Store(index - 1)
		if shard > 1 && index%7 == 0 && index > 20 {
			cut.Store(index - 20)
			if l.RemoveEntriesTo(shard, 1, index-20) != nil {
				return
			}
		}
	}
}

func checkWritten(t *testing.T, seed uint64, l *Log, shard, acked, cut uint64) {
	t.Helper()
	if acked == 0 {
		return
	}
	s, err := l.ReadRaftState(shard, 1, 0)
	last := s.FirstIndex + s.EntryCount - 1
	if err != nil || last < acked || s.FirstIndex > cut+1 {
		t.Fatalf("seed %d: shard %d has %d to %d, acknowledged are %d to %d: %v",
			seed, shard, s.FirstIndex, last, cut+1, acked, err)
	}
	list, _, err := l.IterateEntries(nil, 0, shard, 1, s.FirstIndex, last+1, math.MaxUint64)
	if err != nil || uint64(len(list)) != s.EntryCount {
		t.Fatal(len(list), err)
	}
	for _, e := range list {
		for _, b := range e.Cmd {
			if len(e.Cmd) != 90 || b != e.Cmd[0] {
				t.Fatalf("seed %d: entry %d of shard %d is %x", seed, e.Index, shard, e.Cmd)
			}
		}
	}
}

// TestStuckDisk: while a sync does not return, no call returns. After it has failed, each call
// fails.
func TestStuckDisk(t *testing.T) {
	d := newDisk()
	l := openOn(t, d)
	save(t, l, updateOf(key{1, 1}, 1, entriesOf(1, 1, 1, 3)))
	hold := make(chan error)
	d.mu.Lock()
	d.holdSync = hold
	d.mu.Unlock()
	results := make(chan error, 3)
	for shard := range uint64(3) {
		go func() {
			results <- l.SaveRaftState([]pb.Update{updateOf(key{shard + 1, 1}, 1, entriesOf(2, 1, 1, 3))}, 1)
		}()
	}
	// Reads go on.
	if list, _, err := l.IterateEntries(nil, 0, 1, 1, 1, 2, 0); err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	select {
	case err := <-results:
		t.Fatalf("a call returned %v", err)
	case hold <- errDead:
	}
	for range 3 {
		if err := <-results; !errors.Is(err, errDead) {
			t.Fatal(err)
		}
	}
}
