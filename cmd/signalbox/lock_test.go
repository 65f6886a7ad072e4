package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// running is a command of a test, which is killed with all that is left of it when the test ends.
type running struct {
	t      *testing.T
	cmd    *exec.Cmd
	output outputBuffer
	ended  chan struct{}
}

// outputBuffer keeps what a command writes, which tests read while it runs.
type outputBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *outputBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *outputBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// start runs a command in the background. env is added to the process's own.
func start(t *testing.T, env []string, name string, args ...string) *running {
	t.Helper()
	return startWith(t, env, func(*exec.Cmd) {}, name, args...)
}

// startWith is start with a change of the command before it runs.
func startWith(t *testing.T, env []string, change func(*exec.Cmd), name string, args ...string) *running {
	t.Helper()
	r := &running{t: t, cmd: exec.Command(name, args...), ended: make(chan struct{})}
	r.cmd.Env = append(os.Environ(), env...)
	r.cmd.Stdout, r.cmd.Stderr = &r.output, &r.output
	r.cmd.WaitDelay = time.Second
	// Not the foreground of a terminal that the tests may have: there a ^C is the terminal's to
	// send.
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	change(r.cmd)
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.ended)
		_ = r.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.ended
		if t.Failed() {
			t.Logf("%s said:\n%s", strings.Join(r.cmd.Args, " "), r.output.String())
		}
	})
	return r
}

func (r *running) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// code waits for the end.
func (r *running) code() int {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(patience):
		r.t.Fatalf("%v does not end", r.cmd.Args)
	}
	return r.cmd.ProcessState.ExitCode()
}

// expect runs a command to its end, which must be this exit code.
func expect(t *testing.T, code int, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience) // a whole drill is one command
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = time.Second // what a shell started may have its output
	out, err := cmd.CombinedOutput()
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("%s %s: exit code %d, want %d:\n%s", name, strings.Join(args, " "), got, code, out)
	}
	return string(out)
}

// stamps are what the stamp command wrote: its process, and when it was alive.
type stamps struct {
	pid   int
	alive []time.Duration
}

func stamped(t *testing.T, file string) (s stamps) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		return s
	}
	b = b[:bytes.LastIndexByte(b, '\n')+1] // a line that was being written when it was killed
	for i, f := range strings.Fields(string(b)) {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			s.pid = int(n)
		} else {
			s.alive = append(s.alive, time.Duration(n))
		}
	}
	return s
}

func (s stamps) begun() bool { return len(s.alive) > 0 }

func (s stamps) last() time.Duration { return s.alive[len(s.alive)-1] }

// stood is how long the machine let the process stand still since a moment: a virtual machine that
// is stopped, a processor with too much to do.
func (s stamps) stood(since time.Duration) (sum time.Duration) {
	for i := 1; i < len(s.alive); i++ {
		if gap := s.alive[i] - s.alive[i-1]; s.alive[i] > since && gap > 50*time.Millisecond {
			sum += gap
		}
	}
	return sum
}

// ended reports whether a process runs no more. One that nobody has waited for yet runs no more
// either.
func ended(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	return len(f) > 0 && (f[0] == "Z" || f[0] == "X")
}

// serveProcess starts an instance as a process of its own, and waits until it serves.
func serveProcess(t *testing.T) (r *running, env []string) {
	t.Helper()
	addr := freeAddress()
	r = start(t, nil, "signalbox", "serve", "--data", filepath.Join(t.TempDir(), "data"), "--listen", addr, "--raft",
		freeAddress(), "--admin", "off", "--shards", "2")
	env = []string{"SIGNALBOX_ENDPOINTS=" + addr}
	expect(t, 0, env, "signalbox", "node", "ls", "--timeout", "60s")
	return r, env
}

// TestLockStopsTheCommandInTime: the server is killed for good. Nobody who was held by a lock is
// alive when the session's timeout has passed since its last answer, and so, before anybody else
// could have the lock: not the command, not what it started, whether they take notice of SIGTERM or
// not.
func TestLockStopsTheCommandInTime(t *testing.T) {
	if _, err := os.Stat("/proc/self/task"); err != nil {
		t.Skip("what a command started in another process group is found on Linux only")
	}
	t.Parallel()
	const timeout = 5 * time.Second
	server, env := serveProcess(t)
	dir := t.TempDir()
	type held struct {
		lock  *running
		files []string
	}
	locks := map[string]*held{"obeys": {}, "ignores": {}, "leaves": {}, "daemon": {}}
	for name, h := range locks {
		child, grandchild := filepath.Join(dir, name), filepath.Join(dir, name+"-grandchild")
		h.files = []string{child, grandchild}
		more := map[string][]string{"ignores": {"STAMP_IGNORE=1"}, "leaves": {"STAMP_IGNORE=1", "STAMP_GROUP=1"},
			"daemon": {"STAMP_IGNORE=1", "STAMP_DAEMON=1"}}[name]
		h.lock = start(t, append(more, env...), "signalbox", "lock", name, "--session-timeout", timeout.String(),
			"--", "stamp", child, grandchild)
	}
	for _, h := range locks {
		for _, f := range h.files {
			await.True(t, "the first stamp in "+f, func() bool { return stamped(t, f).begun() })
		}
	}

	before := now()
	server.signal(syscall.SIGKILL)
	killed := now() // no answer after this
	t.Logf("the kill took %s", killed-before)
	for name, h := range locks {
		if code := h.lock.code(); code != exitLost {
			t.Errorf("%s: exit code %d, want %d", name, code, exitLost)
		}
		if out := h.lock.output.String(); !strings.Contains(out, "the command was stopped because its lease was lost") {
			t.Errorf("%s: the output does not say why the command was stopped", name)
		}
		for _, f := range h.files {
			pid := stamped(t, f).pid
			await.True(t, fmt.Sprintf("the end of process %d", pid), func() bool { return ended(pid) })
			s := stamped(t, f)
			after, stood := s.last()-killed, s.stood(killed)
			t.Logf("%s: last alive %s after the server was killed; the machine stood still for %s of it", filepath.Base(f), after, stood)
			if after-stood >= timeout { // nobody can act while the machine does not
				t.Errorf("%s was alive %s after the last answer, with a session timeout of %s", filepath.Base(f), after, timeout)
			}
		}
	}
}

// TestInterruptedLock: ^C in the middle ends the command, its exit code is passed on, and the lock
// is free at once.
func TestInterruptedLock(t *testing.T) {
	t.Parallel()
	env := []string{"SIGNALBOX_ENDPOINTS=" + servertest.Start(t, servertest.RealTime()).Addr()}
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		script string
		code   int
	}{
		{"ends by the signal", syscall.SIGINT, `echo yes >"$0"; exec sleep 1000`, 130},
		{"told to end", syscall.SIGTERM, `echo yes >"$0"; exec sleep 1000`, 143},
		{"hung up", syscall.SIGHUP, `echo yes >"$0"; exec sleep 1000`, 129},
		{"stopped as some images are", syscall.SIGQUIT, `trap 'kill $!; exit 9' QUIT; sleep 1000 & echo yes >"$0"; wait`, 9},
		{"tidies up first", syscall.SIGINT, `trap 'kill $!; exit 7' INT; sleep 1000 & echo yes >"$0"; wait`, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			ready := filepath.Join(t.TempDir(), "ready")
			lock := start(t, env, "signalbox", "lock", "job", "--session-timeout", "10m", "--", "sh", "-c", c.script, ready)
			await.True(t, "the command to run", func() bool { b, _ := os.ReadFile(ready); return len(b) > 0 })
			expect(t, exitNotAcquired, env, "signalbox", "lock", "job", "--wait", "0", "--", "true")
			lock.signal(c.signal)
			if code := lock.code(); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			// It is free long before the session ends: at once, unless the release was given up on
			// a busy machine, and arrives late.
			expect(t, 0, env, "signalbox", "lock", "job", "--wait", "50s", "--", "true")
		})
	}
}

// TestUnconfirmedRelease: when no answer to the release comes, it is said.
func TestUnconfirmedRelease(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	env := []string{"SIGNALBOX_ENDPOINTS=" + srv.Addr()}
	holder := start(t, env, "signalbox", "lock", "job", "--session-timeout", "10m")
	await.True(t, "the lock to be held", func() bool {
		return strings.Contains(expect(t, 0, env, "signalbox", "sem", "ls", "-o", "jsonl"), `"owners":1`)
	})
	srv.Pause()
	holder.signal(syscall.SIGINT)
	if code := holder.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if out := holder.output.String(); !strings.Contains(out, `no instance has confirmed that "job" is released`) ||
		!strings.Contains(out, "after about 10m0s") {
		t.Errorf("the holder said: %s", out)
	}
	srv.Resume()
	expect(t, 0, env, "signalbox", "lock", "job", "--wait", "50s", "--", "true") // it had arrived
}

// TestInterruptedWait: ^C while waiting leaves the queue at once, and nothing was run. So do the
// other signals that ask for an end, and each ends a hold without a command.
func TestInterruptedWait(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		t.Run(s.String(), func(t *testing.T) { testInterruptedWait(t, s) })
	}
}

func testInterruptedWait(t *testing.T, stop syscall.Signal) {
	t.Parallel()
	env := []string{"SIGNALBOX_ENDPOINTS=" + servertest.Start(t, servertest.RealTime()).Addr()}
	holder := start(t, env, "signalbox", "lock", "job")
	inQueue := func(n string) func() bool {
		return func() bool {
			return strings.Contains(expect(t, 0, env, "signalbox", "sem", "ls", "-o", "jsonl"), `"owners":1,"waiters":`+n)
		}
	}
	await.True(t, "the lock to be held", inQueue("0"))
	waiter := start(t, env, "signalbox", "lock", "job", "--", "echo", "it ran")
	await.True(t, "the waiter", inQueue("1"))
	waiter.signal(stop)
	if code := waiter.code(); code != exitNotAcquired {
		t.Errorf("exit code %d, want %d", code, exitNotAcquired)
	}
	if out := waiter.output.String(); strings.Contains(out, "it ran") || !strings.Contains(out, `interrupted while waiting for "job"`) {
		t.Errorf("the waiter said: %s", out)
	}
	await.True(t, "the queue to be empty", inQueue("0"))
	holder.signal(stop)
	if code := holder.code(); code != 0 {
		t.Errorf("exit code %d of who held it", code)
	}
}
