package timerslack

import (
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// monitorSlack makes a sync shorter than two looks of the monitor: it takes the processor of a
// thread that it sees twice in the same system call. A goroutine that waits for that processor
// waits as long. Where the monitor rests it looks each 10 ms, whatever the slack.
const monitorSlack = time.Millisecond

// again is the environment variable that says in which process DelayMonitor has executed the
// program again. It is there in case the system forgets the slack, so that it happens once.
const again = "TIMER_SLACK_OF_PROCESS"

// DelayMonitor executes the program again, in the same process and with the same arguments, with a
// slack of a millisecond for its threads, and returns there. A thread begins with the slack of the
// one that starts it, and the monitor starts before any code of a program. It returns without that
// if the slack is there already, as from systemd's TimerSlackNSec, or if the system refuses.
//
// It is the first thing that main does: whatever is open or running is lost.
func DelayMonitor() {
	pid := strconv.Itoa(os.Getpid())
	done := os.Getenv(again) == pid
	_ = os.Unsetenv(again)
	if done {
		return
	}
	runtime.LockOSThread() // the program is executed with the slack of this thread
	defer runtime.UnlockOSThread()
	before, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || before >= int(monitorSlack) {
		return
	}
	path, err := os.Executable()
	if err != nil || unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(monitorSlack), 0, 0, 0) != nil {
		return
	}
	_ = os.Setenv(again, pid)
	_ = unix.Exec(path, os.Args, os.Environ())
	_ = os.Unsetenv(again)
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(before), 0, 0, 0)
}

// Exact has the thread that runs this goroutine sleep no longer than it asks for, from now on. It
// costs a short system call.
func Exact() {
	_, _, _ = unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, 1, 0, 0, 0, 0) // 0 would be the default
}
