package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// testClock is a clock that stands still but for its test.
type testClock struct{ now atomic.Int64 }

func (c *testClock) Now() time.Duration      { return time.Duration(c.now.Load()) }
func (c *testClock) Wall() time.Time         { return time.Unix(0, c.now.Load()) }
func (c *testClock) advance(d time.Duration) { c.now.Add(int64(d)) }

// newSnapshots has no shard: a snapshot that is begun fails, and stays until it is asked for.
func newSnapshots(t *testing.T, change func(*SnapshotsConfig)) (*Snapshots, *testClock) {
	clock := new(testClock)
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	cfg := SnapshotsConfig{
		Clock: clock, Logger: slog.New(slog.DiscardHandler), Memory: true, Go: running.Go,
		Led: func(uint64) error { return nil },
		Write: func(context.Context, uint64, io.Writer) (index, size uint64, err error) {
			return 0, 0, protocol.Errorf(protocol.StatusUnavailable, "there is no shard")
		},
		Contain: func(_ string, p any) { t.Errorf("panic: %v", p) },
	}
	if change != nil {
		change(&cfg)
	}
	return NewSnapshots(t.Context(), cfg), clock
}

// written begins a snapshot that has these bytes.
func (b *Snapshots) written(t *testing.T, text []byte) *shardSnapshot {
	t.Helper()
	x, err := b.begin(meta.MetaShardID)
	if err != nil {
		t.Fatal(err)
	}
	<-x.ready
	if _, err := x.file.Write(text); err != nil {
		t.Fatal(err)
	}
	x.size, x.err = uint64(len(text)), nil
	return x
}

// ask asks for a part of a snapshot.
func (b *Snapshots) ask(t *testing.T, x *shardSnapshot, offset uint64) (part protocol.BackupPart, err error) {
	t.Helper()
	text, err := json.Marshal(protocol.BackupRequest{Snapshot: x.id, Offset: offset})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := b.Serve(t.Context(), text)
	if err == nil {
		err = json.Unmarshal(answer, &part)
	}
	return part, err
}

// TestBackupBounds: snapshots are bounded. Those that were fetched make room for others.
func TestBackupBounds(t *testing.T) {
	b, clock := newSnapshots(t, nil)
	for range maxSnapshots - 1 {
		if _, err := b.begin(meta.MetaShardID); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		x := b.written(t, []byte("a small shard"))
		if _, err := b.ask(t, x, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.begin(meta.MetaShardID); err != nil {
		t.Errorf("one more, and one that was fetched: %v", err)
	}
	if _, err := b.begin(meta.MetaShardID); !errors.Is(err, protocol.StatusOverloaded) {
		t.Errorf("one too many: %v", err)
	}
	clock.advance(2 * snapshotIdle)
	b.sweep()
	if _, err := b.begin(meta.MetaShardID); err != nil {
		t.Errorf("after the others were left alone: %v", err)
	}
}

// TestFetchedSnapshots: a snapshot whose last part was fetched goes soon after it. The last part
// may be asked for again until then.
func TestFetchedSnapshots(t *testing.T) {
	b, clock := newSnapshots(t, func(c *SnapshotsConfig) { c.Memory, c.Dir = false, t.TempDir() })
	x := b.written(t, bytes.Repeat([]byte("x"), 2*partSize))
	has := func(offset uint64) {
		t.Helper()
		b.sweep()
		if part, err := b.ask(t, x, offset); err != nil || len(part.Bytes) != partSize {
			t.Errorf("at %d: %d bytes, %v", offset, len(part.Bytes), err)
		}
	}
	has(0)
	clock.advance(snapshotIdle) // who fetches it is slow
	has(partSize)
	clock.advance(snapshotGrace) // the answer was lost
	has(partSize)
	clock.advance(snapshotGrace + time.Millisecond)
	if !b.sweep() {
		t.Error("a snapshot is left")
	}
	if _, err := b.ask(t, x, 0); err == nil {
		t.Error("a snapshot that was fetched a while ago is served")
	}
	if _, err := x.file.(*os.File).Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("its file is still there: %v", err)
	}
}

// TestForgottenSnapshots: a snapshot that nobody asks for goes although no other backup is begun.
func TestForgottenSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, clock := newSnapshots(t, nil)
		left := func() int {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.byID)
		}
		for range 2 { // what drops them begins again
			b.written(t, []byte("x"))
			clock.advance(snapshotIdle)
			time.Sleep(2 * snapshotSweep)
			if n := left(); n != 1 {
				t.Fatalf("%d snapshots, want the one that may still be asked for", n)
			}
			clock.advance(time.Second)
			time.Sleep(2 * snapshotSweep)
			if n := left(); n != 0 {
				t.Fatalf("%d snapshots that nobody asks for", n)
			}
		}
	})
}

// TestSnapshotPanics: what a panic has left is no snapshot.
func TestSnapshotPanics(t *testing.T) {
	contained := 0
	b, _ := newSnapshots(t, func(c *SnapshotsConfig) {
		c.Write = func(context.Context, uint64, io.Writer) (uint64, uint64, error) { panic("a test's") }
		c.Contain = func(string, any) { contained++ }
	})
	x, err := b.begin(meta.MetaShardID)
	if err != nil {
		t.Fatal(err)
	}
	<-x.ready
	if _, err := b.ask(t, x, 0); contained != 1 || !errors.Is(err, protocol.StatusInternal) {
		t.Errorf("%d panics, answered with %v", contained, err)
	}
	if age, ok := b.Age(meta.MetaShardID); ok {
		t.Errorf("a backup was made %s ago", age)
	}
}
