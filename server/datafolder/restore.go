package datafolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/signalbox-dev/signalbox/server/file"
)

// unfinishedFile lies in a data folder from the first step of a restore to the last. Without it, a
// server that is started on half of a restore would give empty buckets to the shards that are
// missing.
const unfinishedFile = "restore-unfinished"

// CheckEmpty says why a folder cannot take a restore.
func CheckEmpty(dir string) error {
	list, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("data folder: %w; choose a folder that this process can make, or write to", err)
	}
	for _, f := range list {
		if f.Name() == unfinishedFile {
			return unfinished(dir)
		}
	}
	if len(list) > 0 {
		return fmt.Errorf("data folder %q is not empty; a backup is restored to a new folder, so choose another one; "+
			"to continue the restore of one more tier, give --peer", dir)
	}
	return nil
}

func unfinished(dir string) error {
	return fmt.Errorf("data folder %q has a restore in it that did not end; remove the folder, and restore again", dir)
}

// CheckUnfinished refuses a folder with a restore in it that did not end.
func CheckUnfinished(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, unfinishedFile)); err == nil {
		return unfinished(dir)
	}
	return nil
}

// MarkUnfinished notes on disk that a restore begins.
func MarkUnfinished(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, unfinishedFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close(), file.SyncDir(dir))
	}
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	return nil
}

// ClearUnfinished notes on disk that the restore has ended.
func ClearUnfinished(dir string) error {
	return errors.Join(os.Remove(filepath.Join(dir, unfinishedFile)), file.SyncDir(dir))
}
