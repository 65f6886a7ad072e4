package client

import (
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7

// bootTime reads CLOCK_BOOTTIME. The runtime's own monotonic clock stands still in suspend, and a
// client that slept would think that its leases did too.
func bootTime() time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime,
		uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return monotonic()
	}
	return time.Duration(ts.Nano())
}
