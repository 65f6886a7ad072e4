package logstore

import (
	"bytes"
	"errors"
	"maps"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lni/vfs"
)

func TestMarksRoundTrip(t *testing.T) {
	in := map[key]mark{{1, 2}: {3, 4, 5}, {1, 1}: {6, 7, 8}, {9, 1}: {}}
	b := appendMarks(nil, 42, in)
	seq, out, err := parseMarks(b)
	if err != nil || seq != 42 || !maps.Equal(in, out) {
		t.Fatalf("%d %v %v", seq, out, err)
	}
	for i := range b { // every byte counts
		c := bytes.Clone(b)
		c[i] ^= 1
		if _, _, err := parseMarks(c); err == nil {
			t.Fatalf("byte %d was changed, and nobody noticed", i)
		}
		if _, _, err := parseMarks(b[:i]); err == nil {
			t.Fatalf("cut after %d bytes, and nobody noticed", i)
		}
	}
}

// TestMarksAreOverwritten: fewer marks may follow more. A process that is killed while it writes
// leaves the marks that it wrote before.
func TestMarksAreOverwritten(t *testing.T) {
	fs := vfs.NewMem()
	f := watermarkFiles{fs: fs, dir: "/"}
	check := func(want map[key]mark) {
		t.Helper()
		found := watermarkFiles{fs: fs, dir: "/"}
		if marks, lacking, err := found.read(); err != nil || len(lacking) > 0 || !maps.Equal(marks, want) {
			t.Fatalf("%v, want %v: %v, %v", marks, want, lacking, err)
		}
	}
	marks := map[key]mark{{1, 1}: {1, 1, 1}, {2, 1}: {1, 1, 1}, {3, 1}: {1, 1, 1}}
	f.encode(marks)
	if err := f.writeThrough(); err != nil {
		t.Fatal(err)
	}
	check(marks)
	for id := range uint64(3) {
		delete(marks, key{id + 1, 1})
		f.encode(marks)
		if err := f.write(id == 1); err != nil {
			t.Fatal(err)
		}
		check(marks)
	}
	f.fs = killedFS{fs}
	for range 2 {
		f.encode(map[key]mark{{1, 1}: {9, 9, 9}})
		if err := f.write(false); !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		f.slot = 1 - f.slot
		check(marks)
	}
}

var errKilled = errors.New("killed")

// killedFS is where a process is killed after it has opened a file to write it.
type killedFS struct{ vfs.FS }

type killedFile struct{ vfs.File }

func (f killedFS) Create(name string) (vfs.File, error) {
	file, err := f.FS.Create(name)
	return killedFile{file}, err
}

func (f killedFS) ReuseForWrite(from, to string) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(from, to)
	return killedFile{file}, err
}

func (killedFile) Write([]byte) (int, error)          { return 0, errKilled }
func (killedFile) WriteAt([]byte, int64) (int, error) { return 0, errKilled }

func TestBehind(t *testing.T) {
	at := mark{term: 5, lastTerm: 4, lastIndex: 100}
	for _, c := range []struct {
		m    mark
		want bool
	}{
		{at, false},
		{mark{6, 4, 100}, false},
		{mark{5, 4, 101}, false},
		{mark{5, 5, 7}, false}, // cut by a later leader
		{mark{5, 4, 99}, true},
		{mark{5, 3, 500}, true},
		{mark{4, 4, 100}, true}, // a vote that is forgotten
	} {
		if got := c.m.behind(at); got != c.want {
			t.Errorf("%v behind %v: %v", c.m, at, got)
		}
	}
}

func FuzzMarks(f *testing.F) {
	f.Add(appendMarks(nil, 1, map[key]mark{{1, 1}: {1, 1, 1}}))
	f.Add([]byte("sigm"))
	f.Fuzz(func(t *testing.T, b []byte) {
		seq, marks, err := parseMarks(b)
		if err != nil {
			return
		}
		again, same, err := parseMarks(appendMarks(nil, seq, marks))
		if err != nil || again != seq || !maps.Equal(marks, same) {
			t.Fatalf("%v became %v: %v", marks, same, err)
		}
	})
}

// readOnlyFS takes no more files when it is broken.
type readOnlyFS struct {
	vfs.FS
	broken atomic.Bool
}

func (d *readOnlyFS) ReuseForWrite(from, to string) (vfs.File, error) {
	if d.broken.Load() {
		return nil, syscall.EROFS
	}
	return d.FS.ReuseForWrite(from, to)
}

// TestCloseOnABrokenDisk: the engine does not hear of an error of the close, with which it would
// end the process, and who closes the host does.
func TestCloseOnABrokenDisk(t *testing.T) {
	disk := &readOnlyFS{}
	b := newBed(t, vfs.NewMem(), "/data")
	b.every, b.wrap = time.Hour, func(fs vfs.FS) vfs.FS { disk.FS = fs; return disk }
	b.mustOpen()
	b.bootstrap(key{1, 1})
	disk.broken.Store(true)
	if err := b.store.Close(); err != nil {
		t.Errorf("the engine hears of %v", err)
	}
	if err := b.store.CloseError(); !errors.Is(err, syscall.EROFS) {
		t.Errorf("the error of the close is %v", err)
	}
}
