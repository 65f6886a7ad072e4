package wal

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/server/servertest/seeds"
)

// refusing is a file that takes no direct write from some number on.
type refusing struct {
	directFile
	takes int
}

func (f *refusing) WriteAt(b []byte, off int64) (int, error) {
	if f.takes--; f.takes < 0 {
		return 0, &os.PathError{Op: "write", Path: "segment", Err: syscall.EINVAL}
	}
	return f.directFile.WriteAt(b, off)
}

// TestWriter: whatever the lengths of what is appended, and when it is flushed, the file has it
// all, and zeros up to the end of the block. This is so too if the file system refuses a direct
// write.
func TestWriter(t *testing.T) {
	for seed := range seeds.Of(t, 10, 60) {
		r := rand.New(rand.NewPCG(seed, 1))
		d := newDisk()
		file, err := d.Create("segment")
		if err != nil {
			t.Fatal(err)
		}
		var w writer
		for _, kind := range []string{"direct", "through the page cache", "refusing"} {
			var direct directFile
			if kind != "through the page cache" {
				if direct, err = d.openDirect("segment"); err != nil {
					t.Fatal(err)
				}
				if kind == "refusing" {
					direct = &refusing{direct, r.IntN(10)}
				}
			}
			*d.now["segment"] = inode{}
			if err := w.begin(file, direct); err != nil {
				t.Fatal(err)
			}
			var want []byte
			for range 40 {
				b := make([]byte, 8*r.IntN(1+[]int{20, 600, 5000}[r.IntN(3)]))
				if r.IntN(200) == 0 {
					b = make([]byte, maxKept+8*r.IntN(1000))
				}
				for i := range b {
					b[i] = byte(1 + r.IntN(255))
				}
				copy(w.extend(len(b)), b)
				want = append(want, b...)
				if len(w.buf) <= maxKept-blockSize && cap(w.buf) > maxKept {
					t.Fatalf("seed %d, %s: a buffer of %d bytes is kept", seed, kind, cap(w.buf))
				}
				if r.IntN(2) == 0 {
					continue
				}
				if err := w.flush(); err != nil {
					t.Fatal(err)
				}
				got := d.now["segment"].durable
				if w.pending() || len(got) < len(want) || !bytes.Equal(got[:len(want)], want) {
					t.Fatalf("seed %d, %s: %d bytes are not %d that were written", seed, kind, len(got), len(want))
				}
				if rest := got[len(want):]; len(bytes.Trim(rest, "\x00")) > 0 || len(got) > blocks(len(want)) {
					t.Fatalf("seed %d, %s: %d bytes follow %d", seed, kind, len(rest), len(want))
				}
			}
		}
		if err := w.close(); err != nil {
			t.Fatal(err)
		}
		if d.open != 1 {
			t.Fatalf("%d files are open", d.open)
		}
	}
}

// TestRefusedDirectWrites: a log on a file system that refuses them, at the opening or at a write,
// syncs through the page cache.
func TestRefusedDirectWrites(t *testing.T) {
	for _, takes := range []int{-1, 0, 3} {
		d := newDisk()
		cfg := testConfig(d)
		cfg.openDirect = func(path string) (directFile, error) {
			f, err := d.openDirect(path)
			if takes < 0 {
				return nil, errors.Join(err, f.Close(), syscall.EINVAL)
			}
			return &refusing{f, takes}, err
		}
		l, err := open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint64(10) {
			syncs := d.syncs
			save(t, l, updateOf(key{1, 1}, 1, entriesOf(1+i, 1, 1, 300)))
			if d.syncs == syncs {
				t.Errorf("%d direct writes: entry %d was not synced", takes, 1+i)
			}
		}
		if l.out.direct != nil {
			t.Error("it goes on with direct writes")
		}
		l = openOn(t, d.crash(rand.New(rand.NewPCG(1, 1))))
		if e, _, err := l.IterateEntries(nil, 0, 1, 1, 1, 11, math.MaxUint64); err != nil || len(e) != 10 {
			t.Errorf("%d direct writes: %d entries, %v", takes, len(e), err)
		}
	}
}

// TestReadsBesideDirectWrites: on the operating system's file system, what is read through the page
// cache while the blocks are written past it is what was saved; and a start finds it.
func TestReadsBesideDirectWrites(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), Segment: 256<<10 - 8, Logger: slog.New(slog.DiscardHandler)}
	l, err := open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n := form.Size[uint64](500, 2000, 2000)
	size := func(i uint64) int { return int(i*i) % 700 }
	var saved atomic.Uint64
	check := func(l *Log, low uint64) {
		high := saved.Load()
		list, _, err := l.IterateEntries(nil, 0, 1, 1, low, high+1, math.MaxUint64)
		if err != nil || uint64(len(list)) != high+1-low {
			t.Errorf("%d entries of %d to %d: %v", len(list), low, high, err)
			return
		}
		for _, e := range list {
			if !bytes.Equal(e.Cmd, bytes.Repeat([]byte{byte(e.Index)}, size(e.Index))) {
				t.Errorf("entry %d is %x", e.Index, e.Cmd)
			}
		}
	}
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for saved.Load() < n && !t.Failed() {
				check(l, max(1, saved.Load()))
			}
		})
	}
	for i := uint64(1); i <= n; i++ {
		save(t, l, updateOf(key{1, 1}, 1, entriesOf(i, 1, 1, size(i))))
		saved.Store(i)
	}
	readers.Wait()
	save(t, l, updateOf(key{2, 1}, 1, entriesOf(1, 1, 1, int(cfg.Segment))))
	save(t, l, updateOf(key{2, 1}, 1, entriesOf(2, 1, 1, 1)))
	check(l, 1)
	f, err := openDirect(l.path(1))
	if err == nil {
		_, err = f.WriteAt(alignedBuffer(blockSize)[:blockSize], l.segments[0].length)
		err = errors.Join(err, f.Close())
	}
	if past := l.out.direct != nil; past != (err == nil) {
		t.Errorf("written past the page cache: %v, and the file system answers %v", past, err)
	}
	for _, s := range l.segments[1:] {
		if info, err := os.Stat(l.path(s.number)); err != nil || info.Size() != s.length {
			t.Errorf("segment %d has %d bytes: %v, %v", s.number, s.length, info, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = open(cfg); err != nil {
		t.Fatal(err)
	}
	check(l, 1)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
