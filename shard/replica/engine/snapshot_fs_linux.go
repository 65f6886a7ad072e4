package engine

import (
	"os"

	"golang.org/x/sys/unix"
)

// beginWrite starts writing a file's content to the disk. It is advice: where it fails, the sync
// writes, and reports the error.
func beginWrite(f *os.File) {
	_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
}
