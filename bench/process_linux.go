package bench

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// procAttr makes a server end with the benchmark, however that ends.
func procAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// processCPU is what all threads of a process have used so far: its CPU clock, whose number Linux
// makes of the process's.
func processCPU(id int) (time.Duration, error) {
	const ofProcess = 2 // CPUCLOCK_SCHED, without the bit that means one thread
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^id)<<3|ofProcess, &t); err != nil {
		return 0, errNoProc
	}
	return time.Duration(t.Nano()), nil
}
