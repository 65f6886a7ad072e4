package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest"
)

// aliveEnv names the file that is locked for as long as the tests run.
const aliveEnv = "TEST_ALIVE_FILE"

// lockAlive locks a file and names it to all commands that tests run. The kernel unlocks it when
// this process ends, whatever ends it.
func lockAlive() (*os.File, error) {
	f, err := os.CreateTemp("", "signalbox-test-*")
	if err != nil {
		return nil, err
	}
	os.Setenv(aliveEnv, f.Name())
	return f, syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
}

// endWithTests ends a command when the tests that run it have ended. A run that is killed closes
// nothing, and a watch or a server would stay behind.
func endWithTests() {
	f, err := os.Open(os.Getenv(aliveEnv))
	if err != nil {
		return // run by hand, or the tests are over
	}
	go func() {
		for syscall.Flock(int(f.Fd()), syscall.LOCK_SH) == syscall.EINTR {
		}
		os.Exit(1)
	}()
}

// TestKilledRun: a test run that is killed leaves no command behind, not even one that a shell has
// started.
func TestKilledRun(t *testing.T) {
	if os.Getenv("TEST_KILLED_RUN") != "" {
		watch := exec.Command("sh", "-c", "signalbox cluster status --watch -o jsonl; true")
		watch.Stdout = os.Stdout
		t.Fatal(watch.Run())
	}
	srv := servertest.Start(t, servertest.RealTime())
	run := exec.Command(os.Args[0], "-test.run=^TestKilledRun$")
	run.Env = append(os.Environ(), "TEST_KILLED_RUN=1", "SIGNALBOX_ENDPOINTS="+srv.Addr(), "TMPDIR="+t.TempDir())
	out, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	_, err = r.ReadString('\n')
	_ = run.Process.Kill()
	if err != nil {
		t.Error("the watch printed nothing:", err)
	}
	// All that was started has the pipe.
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Error(err)
	}
	_ = run.Wait()
}
