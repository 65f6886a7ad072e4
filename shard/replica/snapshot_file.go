package replica

import (
	"os"
	"strings"

	"github.com/lni/vfs"
)

// writeAhead is how many bytes of a snapshot's file are written before the disk is told to begin
// with them. Else all of the file waits for the sync at its end, and beside that sync those of the
// log wait.
const writeAhead = 512 << 10

// snapshotSuffix ends the names of the engine's snapshot files.
const snapshotSuffix = ".gbsnap"

// snapshotFS is the engine's file system, whose snapshots go to the disk while they are saved or
// received.
type snapshotFS struct{ vfs.FS }

func (fs snapshotFS) Create(name string) (vfs.File, error) {
	f, err := fs.FS.Create(name)
	if file, ok := f.(*os.File); ok && err == nil && strings.HasSuffix(name, snapshotSuffix) {
		return &snapshotHandle{File: f, file: file}, nil
	}
	return f, err
}

// snapshotHandle hands what is written to the disk without waiting for it: only a sync says that it
// is there.
type snapshotHandle struct {
	vfs.File
	file *os.File
	kept int // bytes that the disk was not told of
}

func (f *snapshotHandle) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	if f.kept += n; f.kept >= writeAhead {
		f.kept = 0
		beginWrite(f.file)
	}
	return n, err
}
