package wal

import (
	"errors"
	"os"

	"github.com/lni/vfs"
	"golang.org/x/sys/unix"
)

// preallocate gives a new file its full length: a sync of a file that grows has the file system
// commit the new length to its journal, too.
func preallocate(f vfs.File, length int64) error {
	file, ok := f.(*os.File)
	if !ok {
		return nil
	}
	for {
		err := unix.Fallocate(int(file.Fd()), 0, 0, length)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return file.Truncate(length)
		default:
			return err
		}
	}
}

// syncData syncs a file's content, and the metadata needed to read it.
func syncData(f vfs.File) error {
	file, ok := f.(*os.File)
	if !ok {
		return f.Sync()
	}
	for {
		if err := unix.Fdatasync(int(file.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// openDirect opens a file to be written past the page cache. A file system that cannot do it
// answers EINVAL, here or to the first write.
func openDirect(path string) (directFile, error) {
	return os.OpenFile(path, os.O_WRONLY|unix.O_DIRECT, 0)
}
