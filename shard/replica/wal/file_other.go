//go:build !linux

package wal

import (
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
