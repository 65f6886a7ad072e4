package main

import (
	"context"
	"os/exec"
	"syscall"
	"time"
)

// shellCommand makes the command of a flag's text: sh runs it, as if a person had typed it. Its
// process group is its own, and gets the signal end when ctx ends.
func shellCommand(ctx context.Context, text string, end syscall.Signal) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", "-c", text)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, end) }
	cmd.WaitDelay = time.Second // for the signal, and for output that its remaining processes keep open
	return cmd
}

// killGroup kills the remaining processes of a shellCommand that has ended.
func killGroup(cmd *exec.Cmd) {
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
}
