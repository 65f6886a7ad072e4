package boottime

import (
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7

// system reads CLOCK_BOOTTIME. The call does not block, so it is made without telling the
// scheduler. A usual system call of an idle process wakes the runtime's monitor thread.
func system() time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime,
		uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return withoutSystem()
	}
	return time.Duration(ts.Nano())
}
