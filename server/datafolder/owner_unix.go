//go:build unix

package datafolder

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
)

// inOwnGroup reports whether a file's group is one of this process.
func inOwnGroup(fi fs.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	groups, _ := os.Getgroups()
	return int(st.Gid) == os.Getegid() || slices.Contains(groups, int(st.Gid))
}

// ownOrRoot reports whether a file belongs to this process's user, or to root.
func ownOrRoot(fi fs.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && (st.Uid == 0 || int(st.Uid) == os.Geteuid())
}

// owner is a file's owner as an error names it.
func owner(fi fs.FileInfo) string {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("user %d, group %d", st.Uid, st.Gid)
	}
	return "another user"
}

// Private makes all that this process creates from now on closed to other users.
func Private() { syscall.Umask(0o077) }
