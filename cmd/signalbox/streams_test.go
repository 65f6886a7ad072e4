package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// piped is a process whose output goes to a pipe of its own, which the test reads, or not.
type piped struct {
	*running
	from *os.File
	read *bufio.Reader
}

func newPiped(r *os.File) *piped { return &piped{from: r, read: bufio.NewReader(r)} }

// startPiped starts a process with the stream, 1 or 2, in a pipe.
func startPiped(t *testing.T, fd int, env []string, args ...string) *piped {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	defer w.Close()
	p := newPiped(r)
	p.running = startWith(t, env, func(cmd *exec.Cmd) {
		if fd == 1 {
			cmd.Stdout = w
		} else {
			cmd.Stderr = w
		}
	}, "signalbox", args...)
	return p
}

// await reads until a line that has the text.
func (p *piped) await(text string) {
	p.t.Helper()
	for read := ""; ; {
		line, err := p.read.ReadString('\n')
		if read += line; err != nil {
			p.t.Fatalf("before %q: %v; it said:\n%s", text, err, read)
		}
		if strings.Contains(line, text) {
			return
		}
	}
}

// serveArgs are the arguments of an instance on free ports, whose settings are read again at SIGHUP.
func serveArgs(t *testing.T, more ...string) (addr, admin string, args []string) {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "serve.yaml")
	if err := os.WriteFile(config, []byte("log-level: info\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	addr, admin = freeAddress(), freeAddress()
	return addr, admin, append([]string{"serve", "--data", filepath.Join(dir, "data"), "--listen", addr,
		"--raft", freeAddress(), "--admin", admin, "--config", config}, more...)
}

// page reads a page of an instance's address for operators.
func page(t *testing.T, admin, path string) (code int, text string) {
	t.Helper()
	r, err := http.Get("http://" + admin + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// dropped is how many lines of its log an instance has dropped.
func dropped(t *testing.T, admin string) (n int) {
	t.Helper()
	_, text := page(t, admin, "/metrics")
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "signalbox_log_dropped_total "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(rest))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("there is no count of lines dropped:\n%s", text)
	return 0
}

// TestLogReaderGone: a process that logs to a pipe whose reader has gone serves on, and ends as it
// does otherwise.
func TestLogReaderGone(t *testing.T) {
	t.Parallel()
	t.Run("serve", func(t *testing.T) {
		t.Parallel()
		addr, admin, args := serveArgs(t)
		p := startPiped(t, 2, nil, args...)
		p.await("msg=serving")
		_ = p.from.Close()
		p.signal(syscall.SIGHUP) // it logs that
		await.True(t, "the line to be dropped", func() bool { return dropped(t, admin) > 0 })
		expect(t, 0, []string{"SIGNALBOX_ENDPOINTS=" + addr}, "signalbox", "sem", "ls")
		p.signal(syscall.SIGTERM)
		if code := p.code(); code != 0 {
			t.Errorf("exit code %d, %v", code, p.cmd.ProcessState)
		}
	})
	t.Run("dev without a reader of its tour", func(t *testing.T) {
		t.Parallel()
		addr := freeAddress()
		p := startPiped(t, 1, nil, "dev", "--listen", addr, "--raft", freeAddress(), "--admin", "off", "--console", "off")
		_ = p.from.Close()
		expect(t, 0, []string{"SIGNALBOX_ENDPOINTS=" + addr, "SIGNALBOX_TIMEOUT=1m"}, "signalbox", "sem", "ls")
		p.signal(syscall.SIGTERM)
		if code := p.code(); code != 0 {
			t.Errorf("exit code %d, %v", code, p.cmd.ProcessState)
		}
	})
	srv := servertest.Start(t, servertest.RealTime())
	env := []string{"SIGNALBOX_ENDPOINTS=" + srv.Addr()}
	for _, c := range []struct {
		name string
		args []string
	}{
		{"lock without a command", []string{"lock", "held"}},
		{"service register", []string{"service", "register", "api"}},
		{"elect", []string{"elect", "leader"}},
		{"console", []string{"console", "--listen", freeAddress()}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := startPiped(t, 1, env, c.args...)
			_ = p.from.Close()
			if c.args[0] == "console" {
				await.True(t, "the console", func() bool {
					r, err := http.Get("http://" + c.args[2])
					if err == nil {
						_ = r.Body.Close()
					}
					return err == nil
				})
			} else {
				name := c.args[len(c.args)-1]
				await.True(t, "the hold", func() bool {
					select {
					case <-p.ended:
						t.Fatalf("it has ended: %v", p.cmd.ProcessState)
					default:
					}
					return strings.Contains(expect(t, 0, env, "signalbox", "sem", "ls"), name)
				})
			}
			p.signal(syscall.SIGTERM)
			if code := p.code(); code != 0 {
				t.Errorf("exit code %d, %v", code, p.cmd.ProcessState)
			}
		})
	}
	// A change is made, whether anybody reads that it is or not.
	t.Run("sem create", func(t *testing.T) {
		t.Parallel()
		p := startPiped(t, 1, env, "sem", "create", "printers", "--limit", "3")
		_ = p.from.Close()
		if code := p.code(); code != 0 {
			t.Errorf("exit code %d, %v", code, p.cmd.ProcessState)
		}
	})
	t.Run("help", func(t *testing.T) {
		t.Parallel()
		p := startPiped(t, 1, env, "help")
		_ = p.from.Close()
		if code := p.code(); code != 0 || p.output.String() != "" {
			t.Errorf("exit code %d, %v; it said %q", code, p.cmd.ProcessState, p.output.String())
		}
	})
	// The output of these is the point. They say nothing of it.
	for _, args := range [][]string{{"sem", "watch", "printers"}, {"sem", "ls"}, {"cluster", "status", "--watch"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			p := startPiped(t, 1, env, args...)
			_ = p.from.Close()
			if code := p.code(); code != exitBrokenPipe || p.output.String() != "" {
				t.Errorf("exit code %d, %v; it said %q", code, p.cmd.ProcessState, p.output.String())
			}
		})
	}
}

// fillPipe fills the pipe of a process, of which nobody reads from then on.
func fillPipe(t *testing.T, p *piped) {
	t.Helper()
	w, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/2", p.cmd.Process.Pid), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	fd := int(w.Fd()) // which makes it blocking
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{4096, 1} { // a pipe takes less when it is nearly full
		for {
			if _, err := syscall.Write(fd, make([]byte, n)); err == syscall.EAGAIN {
				break
			} else if err != nil && err != syscall.EINTR {
				t.Fatal(err)
			}
		}
	}
}

// TestLogReaderStuck: an instance whose log nobody reads serves on, keeps locks, is healthy, and
// ends as it does otherwise. When somebody reads again, the log goes on.
func TestLogReaderStuck(t *testing.T) {
	t.Parallel()
	addr, admin, args := serveArgs(t, "--audit", "stderr")
	p := startPiped(t, 2, nil, args...)
	p.await("msg=serving")
	env := []string{"SIGNALBOX_ENDPOINTS=" + addr, "SIGNALBOX_TIMEOUT=1m"}
	holder := start(t, env, "signalbox", "lock", "held", "--session-timeout", "1s")
	await.True(t, "the lock", func() bool { return strings.Contains(expect(t, 0, env, "signalbox", "sem", "ls"), "held") })
	fillPipe(t, p)
	p.signal(syscall.SIGHUP)
	for i := range 20 { // lines of an event loop and of others each
		expect(t, 0, env, "signalbox", "node", "create", fmt.Sprintf("/node-%d", i))
	}
	if code, text := page(t, admin, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz is %d: %s", code, text)
	}
	select {
	case <-holder.ended:
		t.Error("the lock was lost")
	default:
	}
	p.await("node=/node-19")
	if n := dropped(t, admin); n != 0 {
		t.Errorf("%d lines were dropped, with room for all", n)
	}
	fillPipe(t, p)
	p.signal(syscall.SIGTERM)
	if code := p.code(); code != 0 {
		t.Errorf("exit code %d, %v", code, p.cmd.ProcessState)
	}
}

// TestOutputNotRead: a process whose output nobody reads ends when it is asked to.
func TestOutputNotRead(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	env := []string{"SIGNALBOX_ENDPOINTS=" + srv.Addr()}
	data := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(data, make([]byte, 512<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, 0, env, "signalbox", "config", "set", "one", "--data-file", data)
	p := startPiped(t, 1, env, "config", "get", "one")
	if _, err := p.read.Peek(1); err != nil { // more than the pipe takes is on its way
		t.Fatal(err)
	}
	p.signal(syscall.SIGTERM)
	if code := p.code(); code != exitError || !strings.Contains(p.output.String(), "nobody reads the output") {
		t.Errorf("exit code %d; it said %q", code, p.output.String())
	}
}
