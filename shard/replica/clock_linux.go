package replica

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bootTime reads CLOCK_BOOTTIME: the runtime's own monotonic clock stands still in suspend, and a
// leader that slept would think that its leases did too.
//
// The call does not block, so it is made without telling the scheduler. A usual system call of an
// idle process wakes the runtime's monitor thread.
func bootTime() time.Duration {
	var ts unix.Timespec
	if _, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME,
		uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return monotonic()
	}
	return time.Duration(ts.Nano())
}
