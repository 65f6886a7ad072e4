// What CPU does this process use?

//go:build unix

package loadgen

import (
	"syscall"
	"time"
)

// cpuTime returns the CPU time of this process so far; 0 where that cannot be known.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
