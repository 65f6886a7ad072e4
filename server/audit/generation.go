package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Generation counts the starts of an instance in a small file, 1 at first, and returns the count of this one once it is on disk.
func Generation(path string) (uint64, error) {
	var n uint64
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return 0, fmt.Errorf("count of starts: %w", err)
	default:
		if n, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 63); err != nil {
			return 0, fmt.Errorf("%s does not hold a number; write one into it that is higher than any before, or remove it if nobody reads the audit log", path)
		}
	}
	n++
	next := path + ".new"
	f, err := os.OpenFile(next, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, fmt.Errorf("count of starts: %w", err)
	}
	_, err = fmt.Fprintln(f, n)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return 0, fmt.Errorf("count of starts: %w", err)
	}
	if err := os.Rename(next, path); err != nil {
		return 0, fmt.Errorf("count of starts: %w", err)
	}
	if d, err := os.Open(filepath.Dir(path)); err == nil {
		_ = d.Sync() // not every file system can
		_ = d.Close()
	}
	return n, nil
}
