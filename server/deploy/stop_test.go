package deploy

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/binary"
)

// instance is a process that serves.
type instance struct {
	cmd  *exec.Cmd
	log  await.Log
	done chan error
}

func serve(t *testing.T, args ...string) *instance {
	t.Helper()
	x := &instance{cmd: exec.Command(binary.Signalbox(t), append([]string{"serve"}, args...)...), done: make(chan error, 1)}
	x.cmd.Stderr = &x.log
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { x.done <- x.cmd.Wait() }()
	t.Cleanup(func() {
		_ = x.cmd.Process.Kill()
		if t.Failed() {
			t.Logf("log of %v:\n%s", args, x.log.String())
		}
	})
	return x
}

// TestSlowStop: the other of two instances hangs, so that nothing can be drained
// and no write be answered, and a client does not read. A stop ends all the same, by its limit:
// long before the writes would be given up, which the log would say. Nothing that was acknowledged
// is lost.
func TestSlowStop(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), ports(t)
	at := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", port+i) }
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("0123456789abcdef0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func(i int) *instance {
		return serve(t, "--data", filepath.Join(dir, fmt.Sprint(i)), "--instance", fmt.Sprint("i", i), "--peer",
			at(1)+","+at(4), "--join-token-file", token,
			"--replication-factor", "2", "--listen", at(3*i), "--raft", at(3*i+1), "--admin", at(3*i+2), "--offline-after", "10m",
			"--raft-rtt", "150ms") // a write without an answer is given up after 50 of them
	}
	a, b := start(0), start(1)
	for i, x := range []*instance{a, b} {
		await.True(t, "an instance to be ready", func() bool {
			select {
			case err := <-x.done:
				t.Fatalf("instance %d ended: %v", i, err)
			default:
			}
			return ready(at(3*i + 2))
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c, err := client.Dial(ctx, at(0))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var writing sync.WaitGroup
	defer writing.Wait()
	defer cancel()
	var mu sync.Mutex
	acknowledged := 0
	for i := range 8 {
		s, err := c.Session(ctx, "/default")
		if err != nil {
			t.Fatal(err)
		}
		writing.Go(func() {
			for ctx.Err() == nil {
				l, err := s.Acquire(ctx, fmt.Sprint("job-", i), client.Exclusive())
				if err == nil {
					err = l.Release(ctx)
				}
				if err == nil {
					mu.Lock()
					acknowledged++
					mu.Unlock()
				}
			}
		})
	}
	await.True(t, "writes", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return acknowledged > 20
	})
	deaf, err := net.Dial("tcp", at(0)) // it never reads, and never closes
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()

	if err := b.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-a.done:
		if err != nil {
			t.Errorf("the stop ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the stop does not end")
	}
	text := a.log.String()
	if !strings.Contains(text, "draining first") || !strings.Contains(text, "drain given up") {
		t.Error("nothing held the stop up")
	}
	if strings.Contains(text, "outcome of a proposal is not known") {
		t.Error("the stop waited until the writes were given up")
	}
}

// TestStopWait: two of three instances are asked to stop in the same moment. One stops, the second
// one serves until the first is back. Another signal ends the wait of one that is needed.
func TestStopWait(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), ports(t)
	at := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", port+i) }
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("0123456789abcdef0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func(i int) *instance {
		return serve(t, "--data", filepath.Join(dir, fmt.Sprint(i)), "--instance", fmt.Sprint("i", i),
			"--peer", at(1)+","+at(4)+","+at(7), "--join-token-file", token, "--replication-factor", "3",
			"--listen", at(3*i), "--raft", at(3*i+1), "--admin", at(3*i+2), "--stop-wait", "30m", "--shards", "1")
	}
	all := []*instance{start(0), start(1), start(2)}
	serving := func() {
		t.Helper()
		for i := range all {
			await.True(t, "an instance to be ready", func() bool { return ready(at(3*i + 2)) })
		}
	}
	serving()
	c, err := client.Dial(t.Context(), at(0))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	survivesLoss := func() bool {
		h, err := admin.New(c).Health(t.Context())
		return err == nil && h.State == protocol.HealthHealthy && h.Meta.Voters == 3 && len(h.NextLoss) == 0
	}
	await.True(t, "a cluster that survives the loss of an instance", survivesLoss)
	term := func(i int) {
		t.Helper()
		if err := all[i].cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	term(1)
	term(2)
	first := 1
	ended := func(i int) bool {
		select {
		case err := <-all[i].done:
			if err != nil {
				t.Errorf("instance %d ended with %v", i, err)
			}
			return true
		default:
			return false
		}
	}
	await.True(t, "one of two to stop", func() bool {
		for _, first = range []int{1, 2} {
			if ended(first) {
				return true
			}
		}
		return false
	})
	second := 3 - first
	await.True(t, "the second one to say why it serves on",
		func() bool {
			return strings.Contains(all[second].log.String(), "serves until the cluster can do without it")
		})
	if !ready(at(3*second + 2)) {
		t.Error("an instance that is needed does not serve")
	}
	all[first] = start(first)
	await.True(t, "the second one to stop", func() bool { return ended(second) })
	await.True(t, "the first one to be back", func() bool { return ready(at(3*first + 2)) })
	term(first)
	await.True(t, "the first one to be needed",
		func() bool {
			return strings.Contains(all[first].log.String(), "serves until the cluster can do without it")
		})
	term(first)
	await.True(t, "a second signal to end the wait", func() bool { return ended(first) })
}
