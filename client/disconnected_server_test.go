package client_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// severableClient is a client whose own network can be taken away.
type severableClient struct {
	*client.Client
	mu      sync.Mutex
	severed bool
	open    []net.Conn
}

func dialSeverable(t *testing.T, srv *servertest.Server) *severableClient {
	t.Helper()
	n := &severableClient{}
	c, err := client.Open(testContext(t), client.Config{Endpoints: []string{srv.Addr()}, Dial: n.dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	n.Client = c
	return n
}

func (n *severableClient) dial(ctx context.Context, address string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.severed {
		return nil, errors.New("the network is away")
	}
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", address)
	if err == nil {
		n.open = append(n.open, nc)
	}
	return nc, err
}

func (n *severableClient) sever(away bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.severed = away
	if away {
		for _, nc := range n.open {
			_ = nc.Close()
		}
		n.open = nil
	}
}

// TestWhileDisconnected: what a waiting client learns of its queues when it comes back.
func TestWhileDisconnected(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	holder := session(t, dial(t, srv), client.Timeout(time.Minute))
	names := []string{"granted", "late", "forced"}
	held := make(map[string]*client.Lease)
	for _, name := range names {
		held[name] = acquire(t, holder, name, client.CreateLimit(1))
	}
	n := dialSeverable(t, srv)
	s := session(t, n.Client, client.Timeout(time.Minute))
	granted, place := queue(t, s, "granted")
	late, _ := queue(t, s, "late", client.Wait(10*time.Second))
	forced, _ := queue(t, s, "forced")

	n.sever(true)
	await.True(t, "the session to be detached", func() bool { return s.State() == client.Detached })
	release(t, held["granted"])
	if err := holder.Delete(ctx, "forced", true); err != nil {
		t.Fatal(err)
	}
	srv.Advance(11 * time.Second)
	n.sever(false)

	if l := granted.must(t); l.Token() != place {
		t.Errorf("granted as %d, accepted as %d", l.Token(), place)
	}
	if _, err := late.get(); !errors.Is(err, client.ErrNotAcquired) {
		t.Errorf("the wait that ended: %v", err)
	}
	if _, err := forced.get(); !errors.Is(err, client.ErrAborted) || errors.Is(err, client.ErrNotAcquired) {
		t.Errorf("the wait that had no end: %v", err)
	}
}

// TestReason: a session that the server ends says why, also when it waits for something in other
// shards.
func TestReason(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	if _, err := admin.Nodes(c).Create(ctx, "/doomed", admin.NodeConfig{}); err != nil {
		t.Fatal(err)
	}
	begin := func() (s *client.Session, waiting []outcome[*client.Lease]) {
		s, err := c.Session(ctx, "/doomed")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			w, _ := queue(t, s, name, client.Exclusive())
			waiting = append(waiting, w)
		}
		return s, waiting
	}
	holder, err := c.Session(ctx, "/doomed")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		acquire(t, holder, name, client.Exclusive())
	}
	ended := func(s *client.Session, waiting []outcome[*client.Lease], why string) {
		t.Helper()
		<-s.Context().Done()
		for _, w := range waiting {
			if _, err := w.get(); !errors.Is(err, client.ErrSessionExpired) || !strings.Contains(err.Error(), why) {
				t.Errorf("waiting: %v", err)
			}
		}
		if err := s.Err(); !errors.Is(err, client.ErrSessionExpired) || !strings.Contains(err.Error(), why) {
			t.Errorf("session: %v", err)
		}
	}
	killed, waiting := begin()
	if err := admin.OfNode(killed.Node()).KillSession(ctx, killed.ID(), "in the way"); err != nil {
		t.Fatal(err)
	}
	ended(killed, waiting, "in the way")
	dropped, waiting := begin()
	if _, err := admin.Nodes(c).Delete(ctx, "/doomed", admin.DeleteOptions{Force: true, Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	ended(dropped, waiting, "node was deleted")
	ended(holder, nil, "node was deleted")
	// A node of the same path is another one.
	if _, err := admin.Nodes(c).Create(ctx, "/doomed", admin.NodeConfig{}); err != nil {
		t.Fatal(err)
	}
	fresh, err := c.Session(ctx, "/doomed")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		if _, err := fresh.Node().Describe(ctx, name); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("%s is in the new node: %v", name, err)
		}
	}
}
