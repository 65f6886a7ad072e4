package logstore

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/vfs"
)

// gauge is a disk of 10 GiB that says how much of it is free.
type gauge struct {
	vfs.FS

	mu    sync.Mutex
	free  uint64
	inode uint64 // free ones of 10,000; 0: they are not counted
	looks int
}

func (f *gauge) GetDiskUsage(string) (vfs.DiskUsage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	return vfs.DiskUsage{AvailBytes: f.free, TotalBytes: 10 << 30}, nil
}

func (f *gauge) setFree(n uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free = n
}

func (f *gauge) files(string) (free, total uint64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.inode, 10_000, f.inode > 0
}

func (f *gauge) setFiles(n uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inode = n
}

// looked is how often somebody asked.
func (f *gauge) looked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.looks
}

// TestFull lets the disk fill.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := &gauge{FS: vfs.NewMem()}
		fatal, low := make(chan error, 1), make(chan Space, 1)
		s := New(Config{Dir: "/bed", Fatal: func(err error) { fatal <- err }, Low: func(sp Space) { low <- sp }})
		s.fs, s.space = fs, spaceWatch{fs: fs, dir: "/bed"}
		fs.setFree(600 << 20) // of 10 GiB: the low mark is 512
		s.done.Go(s.maintain)
		time.Sleep(time.Minute)
		select {
		case sp := <-low:
			t.Fatalf("low at %v", sp)
		default:
		}
		fs.setFree(500 << 20)
		if sp := <-low; sp.String() !=
			"500 of 10240 MiB are free, below 512 an instance drains, below 256 it ends" {
			t.Fatalf("%+v", sp)
		}
		fs.setFree(200 << 20)
		if err := <-fatal; !errors.Is(err, ErrNoSpace) ||
			!strings.Contains(err.Error(), "the disk is full: 200 of 10240 MiB are free, at least 256 are needed; make room") {
			t.Fatal(err)
		}
		close(s.stopC)
		s.done.Wait()
	})
}

// TestFilesRunOut lets the inodes of the disk run out, with many bytes left.
func TestFilesRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := &gauge{FS: vfs.NewMem(), free: 8 << 30, inode: 513}
		fatal, low := make(chan error, 1), make(chan Space, 1)
		s := New(Config{Dir: "/bed", Fatal: func(err error) { fatal <- err }, Low: func(sp Space) { low <- sp }})
		s.fs, s.space = fs, spaceWatch{fs: fs, dir: "/bed"}
		s.done.Go(s.maintain)
		time.Sleep(time.Minute)
		select {
		case sp := <-low:
			t.Fatalf("low at %v", sp)
		default:
		}
		fs.setFiles(500)
		if sp := <-low; sp.String() != "500 of 10000 inodes are free, below 512 an instance drains, below 256 it ends" {
			t.Error(sp)
		}
		fs.setFiles(600) // that is not room enough to have it reported again
		time.Sleep(time.Minute)
		fs.setFiles(400)
		time.Sleep(time.Minute)
		fs.setFiles(900)
		time.Sleep(time.Minute)
		if len(low) > 0 {
			t.Error("reported twice")
		}
		fs.setFiles(300)
		<-low
		fs.setFiles(255)
		if err := <-fatal; !errors.Is(err, ErrNoSpace) ||
			!strings.Contains(err.Error(), "the disk is full: 255 of 10000 inodes are free, at least 256 are needed; make room") {
			t.Error(err)
		}
		close(s.stopC)
		s.done.Wait()
	})
}

// TestSpaceText: the sentence names what is short, the worse of both.
func TestSpaceText(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		mib, files uint64
		want       string
	}{
		{60, 5000, "60 of 271 MiB are free, below 64 an instance drains, below 32 it ends"},
		{60, 300, "300 of 10000 inodes are free, below 512 an instance drains, below 256 it ends"},
		{60, 20, "20 of 10000 inodes are free, at least 256 are needed"},
		{20, 300, "20 of 271 MiB are free, at least 32 are needed"},
		{200, 300, "300 of 10000 inodes are free, below 512 an instance drains, below 256 it ends"},
	} {
		s := Space{Bytes: Room{c.mib * mib, 271 * mib, 64 * mib, 32 * mib}, Files: Room{c.files, 10_000, 512, 256}}
		if s.String() != c.want {
			t.Errorf("%d MiB, %d inodes: %s, want %s", c.mib, c.files, s, c.want)
		}
	}
}

// TestDiskFiles: a folder's disk tells its inodes.
func TestDiskFiles(t *testing.T) {
	w := spaceWatch{fs: vfs.Default, dir: t.TempDir()}
	sp, ok := w.look()
	if !ok || sp.Files.Free > sp.Files.Total {
		t.Error(sp, ok)
	}
	if _, ok := (&spaceWatch{fs: vfs.Default, dir: "/there/is/none"}).look(); ok {
		t.Error("a folder that there is not has a disk")
	}
}

// TestLowAtStart: an instance may be started on a nearly full disk, with a warning.
func TestLowAtStart(t *testing.T) {
	for free, want := range map[uint64]bool{500 << 20: true, 600 << 20: false} { // the low mark is 512
		b := newBed(t, vfs.NewMem(), "/bed")
		var text strings.Builder
		s := New(Config{Dir: b.dir, Logger: slog.New(slog.NewTextHandler(&text, nil)), Fatal: func(err error) { t.Error(err) },
			Low: func(sp Space) { t.Errorf("it is to drain at %v", sp) }})
		s.wrap = func(fs vfs.FS) vfs.FS { return &gauge{FS: fs, free: free} }
		db := b.folder()
		if _, err := s.Create(b.engine(), func(config.LogDBInfo) {}, []string{db}, []string{db}); err != nil {
			t.Fatal(err)
		}
		b.store = s
		b.close()
		if got := strings.Contains(text.String(), "the disk of the log is nearly full; make room"); got != want {
			t.Errorf("with %d bytes free there is a warning: %v, in %q", free, got, text.String())
		}
	}
}

// TestIdleStoreSleeps: a store that is not written looks at its disk once a second. Its watermark
// follows a write within a period, and so does a look.
func TestIdleStoreSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &gauge{free: 8 << 30}
		b := newBed(t, vfs.NewMem(), "/bed")
		b.wrap = func(fs vfs.FS) vfs.FS { disk.FS = fs; return disk }
		b.mustOpen()
		defer b.close()
		k := key{1, 1}
		b.bootstrap(k)
		time.Sleep(time.Minute + 500*time.Millisecond) // what the start has written is in the watermark
		looks := disk.looked()
		time.Sleep(time.Minute)
		if n := disk.looked() - looks; n != 60 {
			t.Errorf("%d looks at the disk in an idle minute, want 60", n)
		}

		time.Sleep(300 * time.Millisecond)
		looks = disk.looked()
		for i := range uint64(3) {
			b.save(update(k, 1, entries(1+i, 1)))
			time.Sleep(period + time.Millisecond)
			written := watermarkFiles{fs: b.fs, dir: "/bed"}
			if marks, _, err := written.read(); err != nil || marks[k].lastIndex != 1+i {
				t.Errorf("after entry %d the watermark has %v, %v", 1+i, marks[k], err)
			}
		}
		if n := disk.looked() - looks; n != 3 {
			t.Errorf("%d looks at the disk during three writes, want 3", n)
		}
	})
}

// TestStuck: a write that does not finish is reported when it has taken longer than the limit, and
// no write before.
func TestStuck(t *testing.T) {
	const limit = 30 * time.Second
	synctest.Test(t, func(t *testing.T) {
		fatal := make(chan error, 1)
		s := New(Config{Fatal: func(err error) { fatal <- err }, Stuck: limit, Logger: slog.New(slog.DiscardHandler)})
		s.done.Go(s.watchStuck)
		begin := func() { s.saving.Store(int64(time.Since(s.began)) | 1) }
		end := func() { s.saving.Store(0) }

		time.Sleep(17 * time.Second)
		for range 5 { // slow, and not stuck
			begin()
			time.Sleep(limit - time.Second)
			end()
			time.Sleep(100 * time.Millisecond)
		}
		if s.Waiting() != 0 {
			t.Error("something waits")
		}
		begin()
		began := time.Now()
		time.Sleep(limit - time.Second)
		select {
		case err := <-fatal:
			t.Fatal("too early:", err)
		default:
		}
		err := <-fatal
		if took := time.Since(began); !errors.Is(err, ErrStuck) || took > limit+2*time.Millisecond {
			t.Errorf("after %v: %v", took, err)
		}
		close(s.stopC)
		s.done.Wait()
	})
}
