package chaos

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest/binary"
)

// restartSize is what the instance of TestRestartWithManyNames has.
type restartSize struct {
	names, sessions int
	rate            string // pairs a second beside snapshots
}

// TestRestartWithManyNames: an instance full of semaphores and sessions takes snapshots beside a
// load, is stopped and started, killed and started. Nothing of it is lost. The log has what a
// semaphore takes, how long requests wait beside a snapshot, and how long a restart takes.
func TestRestartWithManyNames(t *testing.T) {
	size := sizeOf(t, restartSize{10_000, 1000, "200"}, restartSize{1_000_000, 100_000, "4000"})
	in := startInstanceWith(t, binary.Signalbox(t))
	in.awaitAnswer()
	clients := openClients(t, 16, in.listen)
	a, most := admin.New(clients[0]), uint64(2*size.names)
	if _, err := admin.Nodes(clients[0]).Alter(t.Context(), client.DefaultNode, admin.NodeConfig{MaxSemaphores: &most}); err != nil {
		t.Fatal(err)
	}
	sessions := make([]*client.Session, size.sessions)
	inParallel(t, len(sessions), func(ctx context.Context, i int) (err error) {
		sessions[i], err = clients[i%len(clients)].Session(ctx, client.DefaultNode, client.Timeout(5*time.Minute))
		return err
	})
	before := resident(in.cmd.Process.Pid)
	inParallel(t, size.names, func(ctx context.Context, i int) error {
		return sessions[i%len(sessions)].Create(ctx, fmt.Sprintf("kept/%d", i), client.Max, []byte("0123456789abcdef"))
	})
	t.Logf("%d semaphores take %d B each, garbage included", size.names, (resident(in.cmd.Process.Pid)-before)/int64(size.names))

	pairs := func(what string) {
		r, err := measureLoad(in.bin, []string{in.listen}, "lock-pairs", "--rate", size.rate, "--callers", "64", "--duration", "10s")
		if err != nil || len(r.Errors) > 0 {
			t.Errorf("pairs %s: %v, %v", what, r, err)
			return
		}
		t.Logf("pairs %s: %v", what, r)
	}
	pairs("alone")
	s, err := a.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	taken := make(chan error)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			x := s.Shards[n%len(s.Shards)]
			if err := a.Backup(ctx, x.ID, func(admin.Snapshot) (io.Writer, error) { return io.Discard, nil }); err != nil && ctx.Err() == nil {
				taken <- err
				return
			}
		}
		t.Logf("%d snapshots", n)
		taken <- nil
	}()
	pairs("beside snapshots")
	stop()
	if err := <-taken; err != nil {
		t.Fatal(err)
	}

	for _, how := range []struct {
		what string
		end  func()
	}{{"stopped", in.stop}, {"killed", in.kill}} {
		how.end()
		in.start()
		ready := in.awaitAnswer()
		if names, n := in.metric("signalbox_shard_semaphores"), in.metric("signalbox_shard_sessions"); int(names) < size.names ||
			int(n) < size.sessions {
			t.Errorf("after it was %s it has %v semaphores and %v sessions", how.what, names, n)
		}
		began := now()
		lease, err := openClients(t, 1, in.listen)[0].Session(t.Context(), client.DefaultNode)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lease.Acquire(t.Context(), "first", client.Ephemeral()); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: ready after %v, the first lock of a new client %v later", how.what, ready, now()-began)
		if err := lease.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range sessions {
		if s.Err() != nil {
			t.Fatalf("session %d of %d: %v", i+1, len(sessions), s.Err())
		}
	}
}
