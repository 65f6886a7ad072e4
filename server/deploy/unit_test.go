package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/binary"
)

// TestUnitExposure: the unit gives the service little to attack with.
func TestUnitExposure(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze here")
	}
	out, err := exec.Command(analyze, "security", "--offline=true", "--threshold=15", "--no-pager", "signalbox.service").CombinedOutput()
	if strings.Contains(string(out), "unrecognized option") {
		t.Skip("systemd-analyze is too old to look at files")
	}
	if err != nil {
		t.Errorf("the exposure is above 1.5: %v\n%s", err, out)
	}
}

// TestUnitSystemCalls: the unit's filter lets every system call through that a server and a command
// under a lock make.
func TestUnitSystemCalls(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"systemd-analyze", "strace"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s here", tool)
		}
	}
	allowed := allowedCalls(t)
	for call, want := range map[string]bool{"io_uring_enter": true, "prlimit64": true, "execve": true, "chown": false, "setpriority": false, "mount": false} {
		if allowed[call] != want {
			t.Errorf("the filter allows %s: %v", call, !want)
		}
	}
	first, dir := ports(t), t.TempDir()
	listen := fmt.Sprintf("127.0.0.1:%d", first)
	trace := func(name string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "strace", append([]string{"-f", "-c", "-U", "name", "-o", filepath.Join(dir, name), binary.Signalbox(t)}, args...)...)
		cmd.Env = append(os.Environ(), "SIGNALBOX_ENDPOINTS="+listen, "SIGNALBOX_TIMEOUT=60s")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		return cmd
	}
	admin := fmt.Sprintf("127.0.0.1:%d", first+2)
	serve := trace("serve", "serve", "--data", filepath.Join(dir, "data"), "--listen", listen,
		"--raft", fmt.Sprintf("127.0.0.1:%d", first+1), "--admin", admin, "--audit", filepath.Join(dir, "audit"))
	var log await.Log
	serve.Stdout, serve.Stderr = &log, &log
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- serve.Wait() }()
	t.Cleanup(func() { _ = syscall.Kill(-serve.Process.Pid, syscall.SIGKILL) })
	await.True(t, "readiness", func() bool {
		select {
		case err := <-ended:
			if strings.Contains(log.String(), "ptrace") {
				t.Skipf("strace does not work here: %s", log.String())
			}
			t.Fatalf("the server ended: %v\n%s", err, log.String())
		default:
		}
		return ready(admin)
	})
	if out, err := trace("lock", "lock", "backup", "--", "sh", "-c", "true").CombinedOutput(); err != nil {
		t.Fatalf("lock: %v\n%s", err, out)
	}
	// The tracer blocks the signal.
	if err := syscall.Kill(-serve.Process.Pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatalf("the server ended with %v\n%s", err, log.String())
	}
	for _, name := range []string{"serve", "lock"} {
		var calls []string
		for line := range strings.Lines(read(t, filepath.Join(dir, name))) {
			// A process that ends while strace leaves it has a line of more words: 12 ???( <detached ...>
			if words := strings.Fields(line); len(words) == 1 {
				calls = append(calls, words[0])
			}
		}
		if len(calls) < 20 || !slices.Contains(calls, "futex") {
			t.Fatalf("%s made the calls %q", name, calls)
		}
		for _, call := range calls {
			if strings.Trim(call, "-") != "" && call != "syscall" && call != "total" && !allowed[call] {
				t.Errorf("%s made the call %s, which the unit refuses", name, call)
			}
		}
	}
}

// allowedCalls returns the system calls that the unit's filter lets through.
func allowedCalls(t *testing.T) map[string]bool {
	t.Helper()
	var expand func(set string) []string
	expand = func(set string) (calls []string) {
		out, err := exec.Command("systemd-analyze", "syscall-filter", "--no-pager", set).Output()
		if err != nil {
			t.Skipf("systemd-analyze does not know %s: %v", set, err)
		}
		for line := range strings.Lines(string(out)) {
			switch call := strings.TrimSpace(line); {
			case call == "" || call == set || strings.HasPrefix(call, "#"):
			case strings.HasPrefix(call, "@"):
				calls = append(calls, expand(call)...)
			default:
				calls = append(calls, call)
			}
		}
		return calls
	}
	allowed := map[string]bool{}
	for line := range strings.Lines(read(t, "signalbox.service")) {
		list, ok := strings.CutPrefix(strings.TrimSpace(line), "SystemCallFilter=")
		if !ok {
			continue
		}
		list, refused := strings.CutPrefix(list, "~")
		for _, set := range strings.Fields(list) {
			for _, call := range expand(set) {
				allowed[call] = !refused
			}
		}
	}
	for _, call := range expand("@default") {
		allowed[call] = true
	}
	return allowed
}
