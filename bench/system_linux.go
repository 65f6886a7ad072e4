// What does Linux report about a process and a disk?

package bench

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ownCPU returns the CPU time of this process and of its children that have ended.
func ownCPU() time.Duration {
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}

func fileSystem(dir string) string {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return "unknown"
	}
	names := map[int64]string{0xef53: "ext4", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x01021994: "tmpfs",
		0x794c7630: "overlayfs", 0x2fc12fc1: "zfs"}
	if n := names[int64(s.Type)]; n != "" {
		return n
	}
	return fmt.Sprintf("file system %#x", s.Type)
}

// openFiles is how many files a process may have open, for those it starts too.
func openFiles() uint64 {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0
	}
	return l.Max
}

// procAttr makes a server end with the benchmark, however that ends.
func procAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// processCPU returns the CPU time that all threads of a process have used: its CPU clock, whose
// number Linux derives from the process's.
func processCPU(id int) (time.Duration, error) {
	const ofProcess = 2 // CPUCLOCK_SCHED, without the bit that means one thread
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^id)<<3|ofProcess, &t); err != nil {
		return 0, errNoProc
	}
	return time.Duration(t.Nano()), nil
}
