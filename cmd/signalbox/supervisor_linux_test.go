package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/processtree"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/supervise"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// marked lists the processes that were started with a variable in their environment and have not
// ended.
func marked(t *testing.T, variable string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err == nil && slices.Contains(strings.Split(string(b), "\x00"), variable) && !ended(pid) {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			list = append(list, fmt.Sprintf("%d %s", pid, bytes.ReplaceAll(line, []byte{0}, []byte(" "))))
		}
	}
	return list
}

// escapes are ways of a command to leave processes behind. Each prints a line to the file READY
// once all of them run, and then goes on for a long time.
var escapes = map[string]string{
	"daemon":   `(setsid sleep 1000 &); echo yes >"$READY"; sleep 1000`,
	"deaf":     `trap '' TERM INT HUP; (setsid sh -c 'trap "" TERM; echo yes >"$READY"; while :; do sleep 1; done' &); while :; do sleep 1; done`,
	"deep":     `(setsid sh -c '(setsid sh -c "(setsid sleep 1000 &); echo yes >\"$READY\"; sleep 1000" &); sleep 1000' &); sleep 1000`,
	"stopped":  `(setsid sh -c 'kill -STOP $$' &); echo yes >"$READY"; kill -STOP $$`,
	"headless": `(setsid sh -c 'sleep 1000 & sleep 1000 & exit' &); echo yes >"$READY"; sleep 1000`,
	// Each process of the chain starts the next one, in a session of its own, and ends.
	"chain": `trap '' TERM; echo 'setsid sh "$0" & echo yes >"$READY"' >"$READY.sh"; setsid sh "$READY.sh" & while :; do sleep 1; done`,
}

// TestNothingOutlivesTheLock: however a lock's command ends, nothing is left of it when the command
// line returns; nor when the command line or the supervisor is killed.
func TestNothingOutlivesTheLock(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Fatal("this test wants setsid of util-linux")
	}
	t.Parallel()
	env := []string{"SIGNALBOX_ENDPOINTS=" + servertest.Start(t, servertest.RealTime()).Addr()}
	ends := map[string]struct {
		how   func(t *testing.T, lock *running, name, script string)
		codes []int
	}{
		"the lease is lost": {func(t *testing.T, lock *running, name, script string) {
			out := expect(t, 0, env, "signalbox", "sem", "describe", name, "-o", "json")
			_, rest, _ := strings.Cut(out, `"session_id": "`)
			id, _, _ := strings.Cut(rest, `"`)
			expect(t, 0, env, "signalbox", "session", "kill", id, "--reason", "test")
		}, []int{exitLost}},
		"two signals": {func(t *testing.T, lock *running, _, _ string) {
			lock.signal(syscall.SIGTERM)
			for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
				_ = lock.cmd.Process.Signal(s) // it may have obeyed the first by now
			}
		}, []int{128 + int(syscall.SIGINT), 128 + int(syscall.SIGTERM), 128 + int(syscall.SIGKILL)}}, // by whether it obeys
		"the command ends": {func(t *testing.T, lock *running, _, script string) {
			for _, pid := range processtree.Children(processtree.Children(lock.cmd.Process.Pid)[0]) {
				if b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); bytes.HasPrefix(b, []byte("sh\x00-c\x00"+script)) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}, []int{128 + int(syscall.SIGKILL)}},
		"the command line is killed": {func(t *testing.T, lock *running, _, _ string) { lock.signal(syscall.SIGKILL) }, []int{-1}},
		"the supervisor is killed": {func(t *testing.T, lock *running, _, _ string) {
			_ = syscall.Kill(processtree.Children(lock.cmd.Process.Pid)[0], syscall.SIGKILL)
		}, []int{128 + int(syscall.SIGKILL)}},
	}
	for end, e := range ends {
		for escape, script := range escapes {
			t.Run(strings.ReplaceAll(end+"/"+escape, " ", "-"), func(t *testing.T) {
				t.Parallel()
				name := strings.ReplaceAll(filepath.Base(filepath.Dir(t.Name()))+"-"+escape, " ", "-")
				dir := t.TempDir()
				ready, mark := filepath.Join(dir, "ready"), "MARK="+dir
				lock := start(t, env, "signalbox", "lock", name, "--session-timeout", "1m", "--", "env", mark,
					"READY="+ready, "sh", "-c", script)
				await.True(t, "the command to run", func() bool { b, _ := os.ReadFile(ready); return len(b) > 0 })
				e.how(t, lock, name, script)
				code := lock.code()
				if !slices.Contains(e.codes, code) {
					t.Errorf("exit code %d, want one of %v", code, e.codes)
				}
				if code == -1 {
					await.True(t, "the end of all processes", func() bool { return len(marked(t, mark)) == 0 })
				}
				if left := marked(t, mark); len(left) > 0 {
					t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
				}
			})
		}
	}
}

// TestStoppedLockEndsItsCommand: a command line that is stopped cannot end its command when the
// lock is lost. Nothing is left of the command all the same when somebody else is granted the lock.
func TestStoppedLockEndsItsCommand(t *testing.T) {
	t.Parallel()
	checkStopped(t, "--session-timeout", "8s")
}

// checkStopped stops a command line that holds a lock, by some flags, and has another one acquire it. The supervisor
// cannot act while the machine stands still: then it is tried again.
func checkStopped(t *testing.T, flags ...string) {
	t.Helper()
	for try := 1; ; try++ {
		stood := standstill()
		left := whileStopped(t, flags...)
		switch stood := stood(); {
		case len(left) == 0:
			return
		case stood == 0 || try == 5:
			t.Fatalf("runs while somebody else has the lock:\n%s", strings.Join(left, "\n"))
		default:
			t.Logf("try %d: the machine stood still for %s", try, stood)
		}
	}
}

// whileStopped returns what runs of a stopped command line's command when another one has the lock.
func whileStopped(t *testing.T, flags ...string) (left []string) {
	t.Helper()
	env := []string{"SIGNALBOX_ENDPOINTS=" + servertest.Start(t, servertest.RealTime()).Addr()}
	dir := t.TempDir()
	ready, mark := filepath.Join(dir, "ready"), "MARK="+dir
	args := append([]string{"lock", "backup"}, flags...)
	lock := start(t, env, "signalbox", append(args, "--", "env", mark, "READY="+ready, "sh", "-c", escapes["deaf"])...)
	await.True(t, "the command to run", func() bool { b, _ := os.ReadFile(ready); return len(b) > 0 })
	lock.signal(syscall.SIGSTOP)
	expect(t, 0, env, "signalbox", "lock", "backup", "--", "true")
	left = marked(t, mark)
	lock.signal(syscall.SIGCONT)
	if code := lock.code(); code != exitLost {
		t.Errorf("exit code %d, want %d", code, exitLost)
	}
	if out := lock.output.String(); slices.Contains(flags, "8s") && !strings.Contains(out, "this process did not run for ") {
		t.Errorf("it does not say why the lock was lost:\n%s", out)
	}
	return left
}

// standstill measures, until stood is called, for how long this process did not get to run when it was due.
func standstill() (stood func() time.Duration) {
	end, sum := make(chan struct{}), make(chan time.Duration)
	go func() {
		var late time.Duration
		for last := time.Now(); ; {
			select {
			case <-end:
				sum <- late
				return
			case at := <-time.After(5 * time.Millisecond):
				if gap := at.Sub(last); gap > 50*time.Millisecond {
					late += gap
				}
				last = time.Now()
			}
		}
	}()
	return func() time.Duration { close(end); return <-sum }
}

// TestStoppedLockEndsAtItsBound: the session of a command line that is stopped lives for long, but its
// hold has a bound. Nothing is left of the command when somebody else has the lock, and the command
// line knows that it has lost it.
func TestStoppedLockEndsAtItsBound(t *testing.T) {
	form.SkipUntil(t, form.Full, "a bound of 10 s passes")
	t.Parallel()
	checkStopped(t, "--session-timeout", "10m", "--max-hold", "10s")
}

// TestStoppedHolderWakesToAnEndedLease: a holder that is stopped beyond its bound believes in nothing
// any more from its first step on.
func TestStoppedHolderWakesToAnEndedLease(t *testing.T) {
	form.SkipUntil(t, form.Full, "a bound of 10 s passes")
	t.Parallel()
	env := []string{"SIGNALBOX_ENDPOINTS=" + servertest.Start(t, servertest.RealTime()).Addr()}
	file := filepath.Join(t.TempDir(), "believed")
	holder := start(t, env, "hold", file)
	await.True(t, "the lock to be held", func() bool { return stamped(t, file).begun() })
	holder.signal(syscall.SIGSTOP)
	expect(t, 0, env, "signalbox", "lock", "backup", "--", "true")
	granted := now()
	holder.signal(syscall.SIGCONT)
	if code := holder.code(); code != 0 {
		t.Errorf("exit code %d: %s", code, holder.output.String())
	}
	if last := stamped(t, file).last(); last >= granted {
		t.Errorf("it believed in the lock %s after somebody else had it", last-granted)
	}
}

// TestShellsProcessesStay: what a shell started before it became signalbox is no part of the
// command, and outlives it. A daemon that such a process started later is taken for one of the
// command's only if the supervisor is killed.
func TestShellsProcessesStay(t *testing.T) {
	t.Parallel()
	env := []string{"SIGNALBOX_ENDPOINTS=" + servertest.Start(t, servertest.RealTime()).Addr()}
	ends := map[string]struct {
		how  func(lock *running)
		left int
	}{
		"the command ends": {func(lock *running) { lock.signal(syscall.SIGTERM) }, 3},
		"the supervisor is killed": {func(lock *running) {
			for _, pid := range processtree.Children(lock.cmd.Process.Pid) {
				if b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); bytes.Contains(b, []byte(supervise.Argument)) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}, 2},
	}
	for end, e := range ends {
		how, left := e.how, e.left
		t.Run(strings.ReplaceAll(end, " ", "-"), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			ready, mark := filepath.Join(dir, "ready"), "MARK="+dir
			lock := start(t, append(env, "READY="+ready), "sh", "-c",
				`env "$0" sh -c "sleep 1000; true" >/dev/null 2>&1 &
				env "$0" sh -c 'until [ -s "$READY" ]; do sleep 0.01; done; setsid sleep 1000 & echo >"$READY.too"' >/dev/null 2>&1 &
				exec signalbox lock "$1" -- sh -c 'echo yes >"$READY"; sleep 1000'`, mark, filepath.Base(t.Name()))
			t.Cleanup(func() {
				for _, line := range marked(t, mark) {
					pid, _, _ := strings.Cut(line, " ")
					if n, err := strconv.Atoi(pid); err == nil {
						_ = syscall.Kill(n, syscall.SIGKILL)
					}
				}
			})
			await.True(t, "the command and the shell's processes to run", func() bool {
				b, _ := os.ReadFile(ready + ".too")
				return len(b) > 0 && len(marked(t, mark)) == 3
			})
			how(lock)
			if code := lock.code(); code <= 128 {
				t.Errorf("exit code %d", code)
			}
			if list := marked(t, mark); len(list) != left {
				t.Errorf("of the shell's processes %d are left, not %d: %q", len(list), left, list)
			}
		})
	}
}

// TestCommandHasTheShellsFiles: the socket to the supervisor takes no place of a file that was
// opened for the command.
func TestCommandHasTheShellsFiles(t *testing.T) {
	t.Parallel()
	env := []string{"SIGNALBOX_ENDPOINTS=" + servertest.Start(t, servertest.RealTime()).Addr()}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("text\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := `signalbox lock door -- sh -c 'cat <&3; cat <&4; cat <&9; ls /proc/self/fd | wc -l' 3<"$0" 4<"$0" 9<"$0"`
	plain := expect(t, 0, nil, "sh", "-c", strings.TrimPrefix(script, "signalbox lock door -- "), file)
	if got := expect(t, 0, env, "sh", "-c", script, file); got != plain {
		t.Errorf("under a lock the command says %q, else %q", got, plain)
	}
}
