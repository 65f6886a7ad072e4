package logstore

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	pb "github.com/lni/dragonboat/v4/raftpb"
	"github.com/lni/vfs"
)

// TestLogIsGone: segments that are removed, or put back from an older copy.
func TestLogIsGone(t *testing.T) {
	for _, c := range []struct {
		name   string
		remove func(segments []string) []string
		want   error
	}{
		{"the newest", func(s []string) []string { return s[len(s)-1:] }, ErrDamaged},
		{"the oldest", func(s []string) []string { return s[:1] }, ErrDamaged},
		{"one in the middle", func(s []string) []string { return s[1:2] }, ErrDamaged},
		{"all", func(s []string) []string { return s }, ErrDamaged},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			b := newBed(t, vfs.Default, dir)
			k := key{1, 1}
			for i := range uint64(4) { // a start begins a new segment
				b.mustOpen()
				if i == 0 {
					b.bootstrap(k)
				}
				b.save(update(k, 1, entries(1+i, 1)))
				b.close()
			}
			segments, err := filepath.Glob(filepath.Join(dir, "db", walFolder, "*.segment"))
			if err != nil || len(segments) < 3 {
				t.Fatal(segments, err)
			}
			for _, path := range c.remove(segments) {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.open(); !errors.Is(err, c.want) {
				t.Fatalf("opened with %v", err)
			}
			b.acceptLoss = true
			b.mustOpen()
			if loss := b.store.Loss(1, 1); loss == "" && c.name != "all" {
				t.Error("there is no loss")
			}
			b.close()
		})
	}
}

// TestCutAtOnce: a process is killed right after a write, before the watermark says so, and the log
// has lost its newest frames.
func TestCutAtOnce(t *testing.T) {
	dir := t.TempDir()
	b := newBed(t, vfs.Default, dir)
	b.mustOpen()
	k := key{1, 1}
	b.bootstrap(k)
	var ends []int // of the frames
	for i := range uint64(5) {
		b.save(update(k, 1, entries(1+i, 1)))
		_, content := newestSegment(t, dir)
		ends = append(ends, len(content))
	}
	for i, end := range ends[:4] {
		killed := copyOf(t, dir)
		old := watermarkFiles{fs: vfs.Default, dir: killed}
		old.encode(map[key]mark{k: {term: 1, lastTerm: 1, lastIndex: 1}})
		if err := old.writeThrough(); err != nil {
			t.Fatal(err)
		}
		path, _ := newestSegment(t, killed)
		if err := os.Truncate(path, int64(end)); err != nil {
			t.Fatal(err)
		}
		if err := newBed(t, vfs.Default, killed).open(); !errors.Is(err, ErrDamaged) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("cut behind entry %d: opened with %v", 1+i, err)
		}
	}
	b.close()
}

// newestSegment returns the path of the newest file of the log, and its content without the room
// that is left.
func newestSegment(t *testing.T, dir string) (path string, content []byte) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "db", walFolder, "*.segment"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no files of the log: %v", err)
	}
	path = logs[len(logs)-1]
	if content, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	return path, bytes.TrimRight(content, "\x00")
}

// copyOf copies a folder, as it is when the process is killed now.
func copyOf(t *testing.T, dir string) string {
	t.Helper()
	for {
		killed := t.TempDir()
		err := os.CopyFS(killed, os.DirFS(dir))
		if err == nil {
			return killed
		}
		if !errors.Is(err, fs.ErrNotExist) { // a file got its final name meanwhile
			t.Fatal(err)
		}
	}
}

// TestDamageIsReported: an entry that is damaged after the start ends the process when the engine
// reads it, and is an error for a caller who asks for that.
func TestDamageIsReported(t *testing.T) {
	for _, returned := range []bool{false, true} {
		dir := t.TempDir()
		b := newBed(t, vfs.Default, dir)
		b.mustOpen()
		b.store.cfg.ReturnDamage = returned
		k := key{1, 1}
		b.bootstrap(k)
		b.save(update(k, 1, entries(1, 1, 1)))
		path := filepath.Join(dir, "db", walFolder, "00000001.segment")
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		at := strings.Index(string(content), "command 1")
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("C"), int64(at)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if returned {
			if _, _, err := b.store.IterateEntries(nil, 0, 1, 1, 1, 3, math.MaxUint64); !errors.Is(err, ErrDamaged) {
				t.Fatal(err)
			}
			b.close()
			continue
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _, _ = b.store.IterateEntries(nil, 0, 1, 1, 1, 3, math.MaxUint64)
		}()
		if err := <-b.fatal; !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) {
			t.Fatal(err)
		}
		close(b.store.failed)
		<-done
		b.close()
	}
}

// BenchmarkSave saves one entry of 256 bytes, and what a leader of three saves next: the commit
// index.
func BenchmarkSave(b *testing.B) {
	for _, what := range []string{"entry", "commit"} {
		b.Run(what, func(b *testing.B) {
			x := newBed(b, vfs.Default, b.TempDir())
			x.mustOpen()
			defer x.close()
			k := key{1, 1}
			x.bootstrap(k)
			u := []pb.Update{update(k, 1, entries(1, 1))}
			x.save(u...)
			u[0].EntriesToSave[0].Cmd = make([]byte, 256)
			if what == "commit" {
				u[0].EntriesToSave = nil
			}
			i := uint64(1)
			cpu := processorTime()
			for b.Loop() {
				i++
				if what == "commit" {
					u[0].State.Commit = i
				} else {
					u[0].EntriesToSave[0].Index = i
				}
				x.save(u...)
			}
			b.ReportMetric(float64(processorTime()-cpu)/float64(b.N)/1000, "cpu-us/op")
		})
	}
}

func processorTime() int64 {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return r.Utime.Nano() + r.Stime.Nano()
}
