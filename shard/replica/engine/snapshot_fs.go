package engine

import (
	"os"
	"strings"

	"github.com/lni/vfs"
)

// snapshotSuffix ends the names of the engine's snapshot files.
const snapshotSuffix = ".gbsnap"

// snapshotFS is the engine's file system, whose snapshots go to the disk while they are saved. Else
// all of a file waits for the sync at its end, and beside that sync those of the log wait.
type snapshotFS struct {
	vfs.FS
	begin func(*os.File) // begins to write a file's content
}

func (fs snapshotFS) Create(name string) (vfs.File, error) {
	f, err := fs.FS.Create(name)
	if file, ok := f.(*os.File); ok && err == nil && strings.HasSuffix(name, snapshotSuffix) {
		return &snapshotHandle{File: f, begin: func() { fs.begin(file) }}, nil
	}
	return f, err
}

// snapshotHandle starts writing its blocks to the disk without waiting: only a sync proves that
// they are there. The engine writes blocks of 2 MiB.
type snapshotHandle struct {
	vfs.File
	begin func()
}

func (s *snapshotHandle) Write(b []byte) (int, error) {
	n, err := s.File.Write(b)
	s.begin()
	return n, err
}
