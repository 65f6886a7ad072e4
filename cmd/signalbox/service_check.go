package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/signalbox-dev/signalbox/client/discovery"
)

// maxCheckOutput is how much of a check's output is read, in bytes.
const maxCheckOutput = 1 << 10

// checkCommand succeeds if sh ends with 0 when it runs the text. The last line of the output is in
// the error. All of the command's process group is killed when the check's time ends.
func checkCommand(text string) discovery.Check {
	return func(ctx context.Context) error {
		cmd := shellCommand(ctx, text, syscall.SIGKILL)
		out := &head{most: maxCheckOutput}
		cmd.Stdout, cmd.Stderr = out, out
		err := cmd.Run()
		killGroup(cmd)
		lines := strings.Split(strings.TrimSpace(out.b.String()), "\n")
		if last := lines[len(lines)-1]; err != nil && last != "" {
			return fmt.Errorf("%w: %s", err, last)
		}
		return err
	}
}

// head keeps the beginning of the output.
type head struct {
	b    bytes.Buffer
	most int
}

var _ io.Writer = (*head)(nil)

func (h *head) Write(p []byte) (int, error) {
	h.b.Write(p[:min(len(p), h.most-h.b.Len())])
	return len(p), nil
}
