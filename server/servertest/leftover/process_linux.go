package leftover

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// adopt makes this process the parent of all that its children leave.
func adopt() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// processes lists the children of this process that run, and ends them.
func processes() (found []string) {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		b, _ := os.ReadFile(list)
		for _, id := range strings.Fields(string(b)) {
			line, err := os.ReadFile("/proc/" + id + "/cmdline")
			if err != nil || len(line) == 0 {
				continue // it has ended, and nobody waited for it
			}
			found = append(found, fmt.Sprintf("process %s: %s", id, bytes.ReplaceAll(bytes.TrimRight(line, "\x00"), []byte{0}, []byte{' '})))
			var pid int
			if _, err := fmt.Sscan(id, &pid); err == nil {
				_ = unix.Kill(pid, unix.SIGKILL)
				_, _ = unix.Wait4(pid, nil, 0, nil) // or who runs these tests finds it
			}
		}
	}
	return found
}
