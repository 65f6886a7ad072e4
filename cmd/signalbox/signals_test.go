package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/supervise"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestSignalsForTheCommand: signals that do not ask for an end reach the command, and it alone, as
// often as they come. They do not count when one that asks for an end follows.
func TestSignalsForTheCommand(t *testing.T) {
	if supervise.SystemSignals() == nil {
		t.Skip("the signals have other numbers on other systems than Linux")
	}
	t.Parallel()
	env := []string{"SIGNALBOX_ENDPOINTS=" + servertest.Start(t, servertest.RealTime()).Addr()}
	messages := []syscall.Signal{syscall.SIGHUP, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
		syscall.SIGPWR, 37, 64, syscall.SIGHUP}
	log := filepath.Join(t.TempDir(), "log")
	// If a signal ended the sleep, the loop would not wait any more.
	lock := start(t, env, "signalbox", "lock", "job", "--session-timeout", "10m", "--", "sh", "-c", `
		for s in 1 10 12 28 30 37 64; do trap "echo got $s >>'$0'" $s; done
		trap 'exit 7' TERM
		sleep 1000 &
		while echo waiting >>"$0"; do wait $!; done`, log)
	want := "waiting\n"
	logged := func() bool { b, _ := os.ReadFile(log); return string(b) == want }
	await.True(t, "the command to run", logged)
	for _, s := range messages {
		lock.signal(s)
		want += fmt.Sprintf("got %d\nwaiting\n", s)
		await.True(t, fmt.Sprintf("signal %d to arrive", s), logged)
	}
	lock.signal(syscall.SIGTERM)
	if code := lock.code(); code != 7 {
		t.Errorf("exit code %d: the command could not end in its own way", code)
	}
}

// TestSignalAtTheGrant: a signal and the grant that arrive at the same time: the command is not
// started, or it gets the signal.
func TestSignalAtTheGrant(t *testing.T) {
	form.SkipUntil(t, form.Full, "dozens of locks with a signal at the grant")
	t.Parallel()
	addr := servertest.Start(t, servertest.RealTime()).Addr()
	c, err := client.Open(t.Context(), client.Config{Endpoints: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseWithoutRelease()
	s, err := c.Session(t.Context(), "/default", client.Timeout(10*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	n, err := c.Node(t.Context(), "/default")
	if err != nil {
		t.Fatal(err)
	}
	verbs := [][]string{{"lock"}, {"elect"}, {"sem", "acquire", "--ephemeral", "--count", "max"}, {"lock", "--shared"}}
	for round := range 24 {
		name := fmt.Sprint("job", round)
		l, err := s.Acquire(t.Context(), name, client.Exclusive())
		if err != nil {
			t.Fatal(err)
		}
		args := append(append([]string{}, verbs[round%len(verbs)]...), name, "--session-timeout", "10m", "--", "sleep", "1000")
		waiter := start(t, []string{"SIGNALBOX_ENDPOINTS=" + addr}, "signalbox", args...)
		await.True(t, "the waiter", func() bool {
			d, err := n.Describe(t.Context(), name, client.IncludeWaiters())
			return err == nil && len(d.Waiters) == 1
		})
		// Both are there when it runs again, and the grant may have come a moment before.
		waiter.signal(syscall.SIGSTOP)
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		await.True(t, "the grant", func() bool {
			d, err := n.Describe(t.Context(), name, client.IncludeOwners())
			return err == nil && len(d.Owners) == 1
		})
		waiter.signal(syscall.SIGCONT)
		for range round * 400 { // a moment later each time, up to a millisecond
			_, _, _ = syscall.RawSyscall(syscall.SYS_GETPPID, 0, 0, 0)
		}
		waiter.signal(syscall.SIGTERM)
		if code := waiter.code(); code != exitNotAcquired && code != 128+int(syscall.SIGTERM) {
			t.Fatalf("round %d: exit code %d", round, code)
		}
	}
}

// TestNoSignalIsMissed: a command that is about to start learns of each signal, whether it came a
// moment before or comes a moment later, and of SIGHUP while it runs, which is its own.
func TestNoSignalIsMissed(t *testing.T) {
	var r receivedSignals
	ended := 0
	end := func() { ended++ }
	signals, stopped, stop := r.duringCommand(true)
	r.dispatch(syscall.SIGHUP, end)
	r.dispatch(syscall.SIGUSR1, end)
	if stopped || ended != 0 {
		t.Errorf("stopped %t, ended %d times, before any stop signal", stopped, ended)
	}
	r.dispatch(syscall.SIGTERM, end)
	for _, want := range []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGTERM} {
		if got := <-signals; got != want {
			t.Errorf("signal %d came, want %d", got, want)
		}
	}
	stop()
	if _, stopped, _ := r.duringCommand(true); !stopped || ended != 1 {
		t.Errorf("stopped %t, ended %d times, after SIGTERM", stopped, ended)
	}
	var hung receivedSignals
	hung.dispatch(syscall.SIGHUP, end)
	if _, stopped, _ := hung.duringCommand(true); !stopped || ended != 2 {
		t.Errorf("stopped %t, ended %d times, after SIGHUP without a command", stopped, ended)
	}
}

// TestArgumentsAreBytes: a command gets its arguments as they are, whatever bytes they have.
func TestArgumentsAreBytes(t *testing.T) {
	t.Parallel()
	env := []string{"SIGNALBOX_ENDPOINTS=" + servertest.Start(t, servertest.RealTime()).Addr()}
	var all strings.Builder
	for b := 1; b < 256; b++ {
		all.WriteByte(byte(b))
	}
	for _, verb := range [][]string{{"lock"}, {"elect"}, {"sem", "acquire", "--ephemeral"}, {"service", "register", "--data", "a:1"}} {
		args := append(append([]string{}, verb...), "job", "--", "printf", "%s|%s", all.String(), "caf\xe9")
		if got := expect(t, 0, env, "signalbox", args...); got != all.String()+"|caf\xe9" {
			t.Errorf("%s: the command got %q", strings.Join(verb, " "), got)
		}
	}
	out := expect(t, supervise.NoCommand, env, "signalbox", "lock", "job", "--", "./caf\xe9")
	if !strings.Contains(out, `./caf\xe9`) {
		t.Errorf("a command that there is not: %s", out)
	}
}
