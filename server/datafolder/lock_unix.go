//go:build unix

package datafolder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/signalbox-dev/signalbox/shard/replica"
)

// Lock keeps every other server off a data folder, those of this process too, until the file is
// closed.
func Lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
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
