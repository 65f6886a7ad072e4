package file

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// createNew makes a file that can be opened by f.Name. If it has no name in the folder, giveName
// gives it a temporary one when it is complete; else giveName is nil.
func createNew(dir, name string) (f *os.File, giveName func() (string, error), err error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	open := fmt.Sprintf("/proc/self/fd/%d", fd)
	if err == nil {
		if _, err = os.Stat(open); err != nil { // there is no /proc
			_ = unix.Close(fd)
		}
	}
	if err != nil { // the file system cannot do it, or says what is wrong when it makes a named one
		f, err = createNamed(dir, name)
		return f, nil, err
	}
	return os.NewFile(uintptr(fd), open), func() (string, error) {
		temporary := filepath.Join(dir, fmt.Sprintf(".%s.%d.part", name, rand.Uint64()))
		err := unix.Linkat(unix.AT_FDCWD, open, unix.AT_FDCWD, temporary, unix.AT_SYMLINK_FOLLOW)
		if err != nil {
			return "", &os.LinkError{Op: "link", Old: open, New: temporary, Err: err}
		}
		return temporary, nil
	}, nil
}
