//go:build !linux

package wal

import (
	"errors"
	"os"

	"github.com/lni/vfs"
)

func preallocate(f vfs.File, length int64) error {
	if file, ok := f.(*os.File); ok {
		return file.Truncate(length)
	}
	return nil
}

func syncData(f vfs.File) error { return f.Sync() }

func openDirect(string) (directFile, error) { return nil, errors.ErrUnsupported }
