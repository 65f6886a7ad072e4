package leftover

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

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
			line := command(id)
			if line == nil {
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

// command is the command line of a process, nil if it has ended. While it becomes another program
// it has none.
func command(id string) (line []byte) {
	for range 1000 {
		stat, err := os.ReadFile("/proc/" + id + "/stat")
		if err != nil || bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" Z")) {
			return nil
		}
		if line, err = os.ReadFile("/proc/" + id + "/cmdline"); err == nil && len(line) > 0 {
			return line
		}
		time.Sleep(time.Millisecond)
	}
	return []byte("(without a command line)")
}
