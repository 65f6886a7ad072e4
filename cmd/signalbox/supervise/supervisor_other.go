//go:build !linux

package supervise

import (
	"os"
	"syscall"
)

// subreaper: here a process whose parent ends becomes a child of init, and only the command's
// process group can be ended.
const subreaper = false

func becomeSubreaper() {}

func commandAttr(group int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pgid: group}
}

// SystemSignals are none here.
func SystemSignals() []os.Signal { return nil }

func executable() (string, error) { return os.Executable() }
