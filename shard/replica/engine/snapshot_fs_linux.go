package engine

import (
	"os"

	"golang.org/x/sys/unix"
)

// beginWrite begins to write to the disk what a file holds. It is advice: where it fails, the sync
// writes, and reports what is wrong.
func beginWrite(f *os.File) {
	_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
}
