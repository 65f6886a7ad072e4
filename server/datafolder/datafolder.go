// Package datafolder keeps the rules of an instance's data folder: who may read it, one process at
// a time, and what must be there together.
package datafolder

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
)

const (
	// IdentityFile says who an instance is.
	IdentityFile = "identity.json"
	// RaftDir is the part of the folder that has the log.
	RaftDir = "raft"
)

// CheckIdentity refuses a folder that has a log and does not say whose. The identity is there
// before the log.
func CheckIdentity(dir string) error {
	identity, log := filepath.Join(dir, IdentityFile), filepath.Join(dir, RaftDir)
	if _, err := os.Lstat(identity); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := os.Lstat(log); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("the instance's identity, %q, is missing, and its log is there; put the file back from a copy, or start on a new folder and let it join", identity)
}

// Restrict keeps other users out of the data folder, where logs, keys and tokens are. A folder
// that others can write to is refused: what is in it may be theirs. One that others can only look
// into is closed to them.
func Restrict(dir string, log *slog.Logger) error {
	fi, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	switch mode := fi.Mode().Perm(); {
	case mode&0o022 != 0:
		return fmt.Errorf("data folder %q has mode %04o: other users can write to it; if you trust what is in it, run: chmod 700 %s",
			dir, mode, dir)
	case mode&0o055 != 0:
		if err := os.Chmod(dir, 0o700); err != nil {
			return fmt.Errorf("data folder %q has mode %04o, and other users can look into it: %w; have its owner run: chmod 700 %s",
				dir, mode, err, dir)
		}
		log.Info("data folder closed to other users", "folder", dir, "mode", fmt.Sprintf("%04o", mode))
	}
	return nil
}
