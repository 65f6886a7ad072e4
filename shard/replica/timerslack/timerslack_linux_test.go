package timerslack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// seen is what a process says after DelayMonitor.
type seen struct {
	Pid    int
	Args   []string
	Slack  int    // of the main thread
	Slacks []int  // of all threads; nil if they may not be read
	Leaked string // the environment variable
}

func TestMain(m *testing.M) {
	if os.Getenv("TIMERSLACK_TEST") == "" {
		os.Exit(m.Run())
	}
	DelayMonitor()
	s := seen{Pid: os.Getpid(), Args: os.Args[1:], Slack: slack(), Leaked: os.Getenv(again)}
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, task := range tasks {
		if b, err := os.ReadFile("/proc/" + task.Name() + "/timerslack_ns"); err == nil {
			n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
			s.Slacks = append(s.Slacks, n)
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func slack() int {
	n, _ := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	return n
}

// start runs this program as one that calls DelayMonitor, and returns what it says and its pid.
func start(t *testing.T, env ...string) (seen, int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, "one", "two words")
	c.Env = append(append(os.Environ(), "TIMERSLACK_TEST=1"), env...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, os.Stderr
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	var s seen
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	return s, c.Process.Pid
}

// TestDelayMonitor: the program goes on in the same process, once, with its arguments, and its
// threads have the slack.
func TestDelayMonitor(t *testing.T) {
	s, pid := start(t)
	if s.Pid != pid || !slices.Equal(s.Args, []string{"one", "two words"}) || s.Leaked != "" {
		t.Errorf("process %d says %+v", pid, s)
	}
	if s.Slack != int(monitorSlack) {
		t.Errorf("the slack is %d", s.Slack)
	}
	for _, n := range s.Slacks { // the monitor is one of them
		if n != int(monitorSlack) {
			t.Errorf("threads have %d", s.Slacks)
			break
		}
	}
}

// TestDelayMonitorOnce: a system that forgets the slack has nothing executed for ever.
func TestDelayMonitorOnce(t *testing.T) {
	before := slack()
	s, pid := start(t, again+"=1") // of another process: it is not believed
	if s.Pid != pid || s.Slack != int(monitorSlack) || s.Leaked != "" {
		t.Errorf("process %d says %+v", pid, s)
	}
	t.Setenv(again, strconv.Itoa(os.Getpid())) // as after it was executed again
	DelayMonitor()                             // or this test would begin again
	if slack() != before || os.Getenv(again) != "" {
		t.Error("the slack or the environment is not as before")
	}
}

// TestExact: the thread sleeps as long as it asks for.
func TestExact(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := slack()
	Exact()
	if n := slack(); n != 1 {
		t.Errorf("the slack is %d", n)
	}
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(before), 0, 0, 0)
}
