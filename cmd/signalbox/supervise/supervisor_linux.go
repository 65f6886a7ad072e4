package supervise

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// subreaper: processes whose parents end can become our children.
const subreaper = true

// becomeSubreaper makes processes below this one its children when their parents end.
func becomeSubreaper() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// commandAttr has the kernel kill the command when its supervisor dies, however it dies.
func commandAttr(group int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pgid: group, Pdeathsig: syscall.SIGKILL}
}

// SystemSignals are those of this system that a command may be sent, and that mean nothing to
// signalbox: SIGPWR, and the real-time signals but the first three, which libraries use.
func SystemSignals() []os.Signal {
	list := []os.Signal{syscall.SIGPWR}
	for s := syscall.Signal(35); s <= 64; s++ {
		list = append(list, s)
	}
	return list
}

// executable is this program, even when its file has been replaced since it was started.
func executable() (string, error) { return "/proc/self/exe", nil }
