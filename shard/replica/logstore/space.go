package logstore

import (
	"fmt"
	"sync/atomic"

	"github.com/lni/vfs"
)

// Space is the free space on the disk of the log.
type Space struct {
	Bytes Room
	Files Room // inodes; without a total: the file system does not limit them
}

// Room is the free amount of one resource.
type Room struct {
	Free, Total uint64
	// Below Low an instance should drain. Below Least the store cannot go on.
	Low, Least uint64
}

// full reports whether there is too little to go on.
func (s Space) full() bool { return s.Bytes.Free < s.Bytes.Least || s.Files.Free < s.Files.Least }

// Low reports whether an instance should drain.
func (s Space) Low() bool { return s.Bytes.Free < s.Bytes.Low || s.Files.Free < s.Files.Low }

// Ample reports whether there is room again, after it was low.
func (s Space) Ample() bool {
	return s.Bytes.Free >= s.Bytes.Low+s.Bytes.Least && s.Files.Free >= s.Files.Low+s.Files.Least
}

// String names the short resource, with the mark that it is below.
func (s Space) String() string {
	const mib = 1 << 20
	r, kind := s.Bytes, " MiB"
	if s.Files.Free < s.Files.Least || s.Files.Free < s.Files.Low && r.Free >= r.Least {
		r, kind = s.Files, " inodes"
	} else {
		r = Room{r.Free / mib, r.Total / mib, (r.Low + mib - 1) / mib, (r.Least + mib - 1) / mib}
	}
	text := fmt.Sprintf("%d of %d%s are free", r.Free, r.Total, kind)
	if s.full() {
		return text + fmt.Sprintf(", at least %d are needed", r.Least)
	}
	return text + fmt.Sprintf(", below %d an instance drains, below %d it ends", r.Low, r.Least)
}

// Marks returns the marks of a disk of this size, in bytes. The least is 5 % of the disk, from 32
// MiB to 256 MiB: as much as the store and a snapshot may write between two checks. The low mark is
// twice that.
func Marks(total uint64) (low, least uint64) {
	const mib = 1 << 20
	least = min(max(total/20, 32*mib), 256*mib)
	return 2 * least, least
}

// leastFiles is how many inodes the store and the snapshots of some dozens of shards may take
// between two checks.
const leastFiles = 256

// spaceWatch checks the disk. Checks must not run concurrently; last may be read at any time.
type spaceWatch struct {
	fs   vfs.FS
	dir  string
	last atomic.Pointer[Space]
}

// fileCounter is a file system that reports its inodes, for tests.
type fileCounter interface {
	files(dir string) (free, total uint64, ok bool)
}

// look returns the free space; false if the disk does not report it.
func (w *spaceWatch) look() (Space, bool) {
	u, err := w.fs.GetDiskUsage(w.dir)
	if err != nil || u.TotalBytes == 0 {
		return Space{}, false
	}
	s := Space{Bytes: Room{Free: u.AvailBytes, Total: u.TotalBytes}}
	s.Bytes.Low, s.Bytes.Least = Marks(u.TotalBytes)
	count := func(string) (free, total uint64, ok bool) { return 0, 0, false }
	if f, ok := w.fs.(fileCounter); ok {
		count = f.files
	} else if w.fs == vfs.Default {
		count = diskFiles
	}
	if free, total, ok := count(w.dir); ok && total > 0 {
		s.Files = Room{Free: free, Total: total, Low: 2 * leastFiles, Least: leastFiles}
	}
	w.last.Store(&s)
	return s, true
}

// CheckSpace returns [ErrNoSpace] if there is too little space for a log in an existing folder of the
// disk. It is for programs that write other files before they open their log.
func CheckSpace(dir string) error {
	w := spaceWatch{fs: vfs.Default, dir: dir}
	if sp, ok := w.look(); ok && sp.full() {
		return fullError(sp)
	}
	return nil
}

func fullError(sp Space) error {
	return fmt.Errorf("%w: %v; make room, then start again", ErrNoSpace, sp)
}
