package server

import (
	"fmt"
	"log/slog"
	"syscall"
)

// reservedFiles is how many open files are kept for the log, snapshots, other instances and
// operators.
const reservedFiles = 512

// maxConnections raises the soft limit on open files to the hard one, and bounds the connections so
// that the log always has files left.
func maxConnections(limit int, log *slog.Logger) (int, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, fmt.Errorf("read the limit on open files: %w", err)
	}
	if l.Cur < l.Max {
		raised := syscall.Rlimit{Cur: l.Max, Max: l.Max}
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised) == nil {
			l.Cur = l.Max
		}
	}
	room, ok := roomFor(uint64(l.Cur)) // int64 on FreeBSD
	if !ok {
		return 0, fmt.Errorf("the limit on open files is %d, too low to serve anybody; raise it (ulimit -n)", l.Cur)
	}
	if room < uint64(limit) {
		limit = int(room)
		log.Info("connections are bounded by the limit on open files", "connections", room, "files", l.Cur)
	}
	return limit, nil
}

// roomFor returns how many connections a limit on open files allows. A small one is shared in half.
func roomFor(files uint64) (connections uint64, ok bool) {
	const least = 64
	if files < 2*least {
		return 0, false
	}
	return files - min(reservedFiles, files/2), true
}
