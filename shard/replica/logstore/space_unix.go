//go:build linux || darwin || freebsd

package logstore

import "golang.org/x/sys/unix"

// diskFiles is how many inodes the file system of a folder has, and how many are free.
func diskFiles(dir string) (free, total uint64, ok bool) {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return 0, 0, false
	}
	return uint64(max(0, int64(s.Ffree))), uint64(s.Files), true
}
