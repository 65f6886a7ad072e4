package datafolder

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
)

// Restrict keeps other users out of the data folder, where logs, keys and tokens are. A folder of
// this process's user is closed to all others. If others could write to it before, all that is in it
// has to be this user's own or root's: the rest may have been put there.
//
// A folder that this process cannot close is used if nobody but its own group can write to it: so a
// volume belongs to a pod. What is in it is closed as far as it is this user's own.
func Restrict(dir string, log *slog.Logger) error {
	fi, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	mode := fi.Mode().Perm()
	if mode&0o077 == 0 {
		return nil
	}
	ownGroup := mode&0o002 == 0 && inOwnGroup(fi)
	if mode&0o022 != 0 && !ownGroup {
		if stranger, err := foreign(dir); err != nil {
			return fmt.Errorf("data folder: %w", err)
		} else if stranger != "" {
			return fmt.Errorf("data folder %q has mode %04o, so other users can write to it, and %s belongs to one of them; "+
				"if you trust what is in it, run: chmod 700 %s", dir, mode, stranger, dir)
		}
	}
	err = os.Chmod(dir, 0o700)
	switch {
	case err == nil:
		log.Info("data folder closed to other users", "folder", dir, "mode", fmt.Sprintf("%04o", mode))
		return nil
	case !errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("data folder %q has mode %04o, and cannot be closed to other users: %w; "+
			"choose a folder that this process can write to", dir, mode, err)
	case mode&0o002 != 0 || mode&0o020 != 0 && !ownGroup:
		return fmt.Errorf("data folder %q has mode %04o and belongs to %s: other users can write to it, and this process cannot close it; "+
			"give a folder below it, such as %s, which is made and closed, or have its owner run: chmod 700 %s",
			dir, mode, owner(fi), filepath.Join(dir, "signalbox"), dir)
	}
	if err := closeEntries(dir); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	log.Info("data folder is open to this process's group, and cannot be closed", "folder", dir, "mode",
		fmt.Sprintf("%04o", mode),
		"belongs_to", owner(fi))
	return nil
}

// foreign finds what belongs neither to this user nor to root; empty: there is nothing.
func foreign(dir string) (found string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) && path != dir {
			return nil // a folder such as lost+found, which this process cannot use either
		}
		if err != nil || path == dir {
			return err
		}
		fi, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && !ownOrRoot(fi) {
			found, err = fmt.Sprintf("%q", path), filepath.SkipAll
		}
		return err
	})
	return found, err
}

// closeEntries closes what lies in a folder to other users. What is another user's stays as it is.
func closeEntries(dir string) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		fi, err := e.Info()
		if err != nil || fi.Mode()&fs.ModeSymlink != 0 || fi.Mode().Perm()&0o077 == 0 {
			continue
		}
		if err := os.Chmod(filepath.Join(dir, e.Name()), fi.Mode().Perm()&^0o077); err != nil &&
			!errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}
