package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestServeDelaysTheMonitor: the process that was started serves, and the monitor of Go's runtime
// wakes up a millisecond late.
func TestServeDelaysTheMonitor(t *testing.T) {
	t.Parallel()
	server, _ := serveProcess(t)
	pid := strconv.Itoa(server.cmd.Process.Pid)
	tasks, err := os.ReadDir(filepath.Join("/proc", pid, "task"))
	if err != nil {
		t.Fatal(err)
	}
	var slacks []string
	for _, task := range tasks {
		b, err := os.ReadFile(filepath.Join("/proc", task.Name(), "timerslack_ns"))
		switch {
		case os.IsPermission(err):
			t.Skip("the slack of another process is shown with CAP_SYS_NICE only")
		case err == nil: // else it has just ended
			slacks = append(slacks, strings.TrimSpace(string(b)))
		}
	}
	const want = "1000000"
	for _, s := range slacks {
		if s == want {
			return
		}
	}
	t.Errorf("no thread has a slack of %s ns: %s", want, slacks)
}
