package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/spf13/cobra"
)

// TestInterruptedAtTheGrant: a signal between the grant and the start of the command is not lost.
// The command is not started, and the lock is free at once.
func TestInterruptedAtTheGrant(t *testing.T) {
	t.Parallel()
	addr := servertest.Start(t, servertest.RealTime()).Addr()
	ctx, interrupt := context.WithCancel(t.Context())
	var output bytes.Buffer
	inv := &invocation{
		app: newApp(ctx, strings.NewReader(""), &output, &output), ctx: t.Context(), longCtx: ctx,
		node: "/default", ttl: 10 * time.Minute, cfg: client.Config{Endpoints: []string{addr}},
	}
	defer inv.disconnect()
	h := holdArgs{name: "job", command: []string{"echo", "it ran"}, wait: client.Forever}
	err := inv.hold(h, "locked", func(s *client.Session, opts ...client.AcquireOption) (*client.Lease, error) {
		l, err := s.Acquire(ctx, h.name, append(opts, client.Exclusive())...)
		interrupt()
		return l, err
	})
	var ce *codeError
	if !errors.As(err, &ce) || ce.code != exitNotAcquired || !strings.Contains(err.Error(), "interrupted before the command was started") {
		t.Errorf("interrupted at the grant: %v", err)
	}
	if strings.Contains(output.String(), "it ran") {
		t.Error("the command was run")
	}
	env := []string{"SIGNALBOX_ENDPOINTS=" + addr}
	expect(t, 0, env, "signalbox", "lock", "job", "--wait", "50s", "--", "true")
}

// TestInterruptedRead: a signal ends a command that reads a file of which nothing comes.
func TestInterruptedRead(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"data":      {"config", "set", "flags", "--data-file"},
		"a payload": {"rollout", "publish", "geo/base"},
		"a backup":  {"cluster", "backup", "--verify"},
		"a restore": {"cluster", "restore", "--data", filepath.Join(t.TempDir(), "data")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fifo := filepath.Join(t.TempDir(), "fifo")
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			r := start(t, nil, "signalbox", append(args, fifo)...)
			w := openFIFO(t, fifo)
			defer w.Close()
			r.signal(syscall.SIGINT)
			if code := r.code(); code != exitError {
				t.Errorf("exit code %d, want %d", code, exitError)
			}
			if out := r.output.String(); !strings.Contains(out, "interrupted while reading "+fifo) {
				t.Errorf("it said: %s", out)
			}
		})
	}
}

// TestOverdueStop: an instance that does not stop is ended, and one that does is not, nor one that is
// not asked to.
func TestOverdueStop(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ asked, stops, ended bool }{
		{true, false, true}, {true, true, false}, {false, false, false}, {false, true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, ask := context.WithCancel(t.Context())
			stopped, stop := context.WithCancel(t.Context())
			var ended atomic.Bool
			cancel := endOverdue(ctx, stopped, 3*time.Second, func() { ended.Store(true) })
			if c.asked {
				ask()
			}
			time.Sleep(10 * time.Second) // all parts of a stop together take less
			if ended.Load() {
				t.Error("ended too early")
			}
			if c.stops {
				stop()
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			cancel()
			if ended.Load() != c.ended {
				t.Errorf("asked to stop: %v, stops: %v, ended: %v", c.asked, c.stops, ended.Load())
			}
			ask()
			stop()
		})
	}
}

// TestSlowInput: what is read may come later than --timeout.
func TestSlowInput(t *testing.T) {
	t.Parallel()
	addr := servertest.Start(t).Addr()
	input, feed := io.Pipe()
	var output bytes.Buffer
	a := newApp(t.Context(), input, &output, &output)
	var first context.Context
	c := &cobra.Command{Use: "put", RunE: a.verb(func(inv *invocation, _ *cobra.Command, _ []string) error {
		first = inv.ctx
		go func() {
			<-first.Done()
			fmt.Fprint(feed, "on")
			feed.Close()
		}()
		data, err := inv.readFile(inv.longCtx, "-")
		if err != nil {
			return err
		}
		return inv.withSession(func(s *client.Session) error {
			_, err := s.Config("flags").Set(inv.longCtx, data)
			return cmp.Or(err, inv.ctx.Err())
		})
	})}
	settings.AddFlags(c.Flags(), settings.Client)
	c.SetArgs([]string{"--endpoints", addr, "--timeout", "1s"})
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Errorf("with input that came when --timeout was over: %v", err)
	}
	if first.Err() == nil {
		t.Error("the input came before --timeout was over")
	}
}

// openFIFO opens a FIFO to write, once a process reads it.
func openFIFO(t *testing.T, path string) (w *os.File) {
	t.Helper()
	await.True(t, "the FIFO to be opened", func() bool {
		var err error
		w, err = os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0) // refused while nobody reads
		return err == nil
	})
	return w
}

// TestHangupWhileSettingsAreRead: a SIGHUP that comes before an instance has read its settings does
// not stop it. It takes effect when the instance serves.
func TestHangupWhileSettingsAreRead(t *testing.T) {
	t.Parallel()
	dir, addr := t.TempDir(), freeAddress()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, nil, "signalbox", "serve", "--config", fifo, "--data", filepath.Join(dir, "data"),
		"--listen", addr, "--raft", freeAddress(), "--admin", "off")
	write := func(whileRead func()) {
		t.Helper()
		w := openFIFO(t, fifo)
		defer w.Close()
		whileRead()
		if _, err := w.WriteString("log-level: warn\n"); err != nil {
			t.Fatal(err)
		}
	}
	write(func() { r.signal(syscall.SIGHUP) })
	expect(t, 0, []string{"SIGNALBOX_ENDPOINTS=" + addr, "SIGNALBOX_TIMEOUT=1m"}, "signalbox", "sem", "ls")
	write(func() {})
	r.signal(syscall.SIGTERM)
	if code := r.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestInterruptedStandardInput: the same for standard input.
func TestInterruptedStandardInput(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	r, w := io.Pipe()
	defer w.Close()
	var output bytes.Buffer
	ended := make(chan int)
	go func() { ended <- run(ctx, []string{"config", "set", "flags", "--data-file", "-"}, r, &output, &output) }()
	if _, err := w.Write([]byte("part of the data")); err != nil { // returns once it is read
		t.Fatal(err)
	}
	interrupt()
	select {
	case code := <-ended:
		if code != exitError || !strings.Contains(output.String(), "interrupted while reading standard input") {
			t.Errorf("exit code %d; it said: %s", code, output.String())
		}
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
}
