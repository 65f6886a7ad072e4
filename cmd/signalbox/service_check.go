package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/signalbox-dev/signalbox/client/discovery"
)

// maxCheckOutput is how much of a check's output is read, in bytes.
const maxCheckOutput = 1 << 10

// checkCommand succeeds if a command ends with 0. The last line of its output is in the error. It
// is killed with all of its process group when the check's time ends.
func checkCommand(args []string) discovery.Check {
	return func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = time.Second
		out := &head{most: maxCheckOutput}
		cmd.Stdout, cmd.Stderr = out, out
		err := cmd.Run()
		if cmd.Process != nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it has left running
		}
		lines := strings.Split(strings.TrimSpace(out.b.String()), "\n")
		if last := lines[len(lines)-1]; err != nil && last != "" {
			return fmt.Errorf("%w: %s", err, last)
		}
		return err
	}
}

// head keeps the beginning of what is written.
type head struct {
	b    bytes.Buffer
	most int
}

var _ io.Writer = (*head)(nil)

func (h *head) Write(p []byte) (int, error) {
	h.b.Write(p[:min(len(p), h.most-h.b.Len())])
	return len(p), nil
}
