//go:build unix

package datafolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/signalbox-dev/signalbox/shard/replica"
)

// Lock keeps every other server off a data folder, those of this process too, until the file is
// closed.
func Lock(dir string) (*os.File, error) {
	name := filepath.Join(dir, "lock")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrPermission) {
		fi, statErr := os.Stat(name)
		if statErr != nil {
			fi, statErr = os.Stat(dir)
		}
		if statErr == nil {
			return nil, fmt.Errorf("lock the data folder: %w; it belongs to %s, and this process is user %d, group %d: "+
				"run it as the former, have all of the folder given to the latter, or choose another folder",
				err, owner(fi), os.Geteuid(), os.Getegid())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("lock the data folder: %w; choose a folder that this process can write to", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, replica.ErrLocked
		}
		return nil, fmt.Errorf("lock the data folder: %w", err)
	}
	return f, nil
}
