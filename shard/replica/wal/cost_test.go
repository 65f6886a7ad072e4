package wal

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"
	"github.com/lni/vfs"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestMillions: the memory of millions of entries, and the time to read them at the start.
func TestMillions(t *testing.T) {
	n, batch := form.Size[uint64](100_000, 1_000_000, 5_000_000), 2000
	cfg := Config{Dir: t.TempDir()}
	l, err := open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	for i := uint64(0); i < n; i += uint64(batch) {
		save(t, l, updateOf(key{1, 1}, 1, entriesOf(i+1, batch, 1, 40)))
	}
	used := heap() - before
	segments := len(l.segments)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if l, err = open(cfg); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d entries in %d segments: %d bytes of memory each, read in %v", n,
		segments, used/int64(n), time.Since(began).Round(time.Millisecond))
	if used/int64(n) > 16 && !form.Race {
		t.Errorf("%d bytes of memory for each entry", used/int64(n))
	}
	began = time.Now()
	if err := l.RemoveEntriesTo(1, 1, n-10); err != nil {
		t.Fatal(err)
	}
	t.Logf("removed in %v", time.Since(began))
	l.changed.Store(true)
	if err := l.clean(); err != nil {
		t.Fatal(err)
	}
	if s := len(l.segments); s > 2 {
		t.Errorf("%d segments are left", s)
	}
	if left := heap() - before; left > 1<<20 && !form.Race {
		t.Errorf("%d bytes of memory are left", left)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestSaveAllocates one thing for each call at most.
func TestSaveAllocates(t *testing.T) {
	if form.Race {
		t.Skip("the race detector empties pools")
	}
	l, err := Open(Config{Dir: "/", FS: discard{newDisk()}})
	if err != nil {
		t.Fatal(err)
	}
	i := uint64(0)
	u := []pb.Update{updateOf(key{1, 1}, 1, entriesOf(1, 1, 1, 256))}
	n := testing.AllocsPerRun(200, func() {
		i++
		u[0].EntriesToSave[0].Index = i
		save(t, l, u...)
	})
	if n > 1 { // the list of its records
		t.Errorf("%v allocations", n)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// discard is a disk that keeps nothing.
type discard struct{ *disk }

func (d discard) Create(name string) (vfs.File, error) {
	if f, err := d.disk.Create(name); err != nil {
		return f, err
	}
	return discardFile{}, nil
}

func (d discard) ReuseForWrite(_, _ string) (vfs.File, error) { return discardFile{}, nil }

type discardFile struct{ vfs.File }

func (discardFile) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

func (discardFile) Sync() error { return nil }

func (discardFile) Close() error { return nil }

func BenchmarkSave(b *testing.B) {
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l, err := Open(Config{Dir: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			i := uint64(1)
			for b.Loop() {
				save(b, l, updateOf(key{1, 1}, 1, entriesOf(i, n, 1, 256)))
				i += uint64(n)
			}
		})
	}
}
