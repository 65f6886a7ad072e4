package replica

import (
	"os"

	"golang.org/x/sys/unix"
)

// extendFile makes a file at least length bytes long. What is there stays as it is, also what is
// written meanwhile.
func extendFile(name string, length int64) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() >= length {
		return err
	}
	return unix.Fallocate(int(f.Fd()), 0, 0, length)
}
