package servertest_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// mute dials connections whose other end hears nothing any more, and does not learn that, from the
// moment that dead is set.
func mutableDialer(dead *atomic.Bool) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		if dead.Load() {
			return nil, errors.New("the client is dead")
		}
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		return mutedConn{c, dead}, err
	}
}

type mutedConn struct {
	net.Conn
	dead *atomic.Bool
}

func (c mutedConn) Write(b []byte) (int, error) {
	if c.dead.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// TestDeadSessionEndsDuringTransfers: leaderships go round for as long as it takes, faster than a
// session's timeout, and what a dead client holds becomes free all the same. A change of leader
// that gave its session new time would keep it for ever.
func TestDeadSessionEndsDuringTransfers(t *testing.T) {
	t.Parallel()
	c := servertest.StartCluster(t, 3, servertest.Shards(2))
	dial := func(how func(context.Context, string) (net.Conn, error), opts ...client.SessionOption) (*client.Client, *client.Session) {
		cl, err := client.Open(t.Context(), client.Config{Endpoints: c.Addrs(), Dial: how})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.CloseWithoutRelease)
		s, err := cl.Session(t.Context(), "/default", opts...)
		if err != nil {
			t.Fatal(err)
		}
		return cl, s
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var died atomic.Bool
	for err := errors.New("not yet"); err != nil; { // again if a slow machine ends the session before it has the lock
		_, dead := dial(mutableDialer(&died), client.Timeout(2*time.Second))
		if _, err = dead.Acquire(ctx, "lock", client.Exclusive()); ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	operator, waits := dial(nil, client.Timeout(time.Minute))
	granted := make(chan error, 1)
	go func() {
		_, err := waits.Acquire(ctx, "lock", client.Exclusive())
		granted <- err
	}()
	died.Store(true)

	at, rounds := time.Now(), 0
	pace := time.NewTicker(700 * time.Millisecond)
	defer pace.Stop()
	for done := false; !done; rounds++ {
		for _, id := range c.Shards() {
			var to string
			c.Await("a master", func(s *meta.State) bool {
				x, _ := s.Shard(id)
				for _, i := range s.Instances() {
					if i.ID != x.Master {
						to = i.Name
					}
				}
				return x.Master != 0 && x.Master == x.TargetMaster
			})
			// One that comes in between, after a death that nobody asked for on a busy machine, is
			// as good.
			if _, err := admin.New(operator).Transfer(ctx, id, to); err != nil && ctx.Err() == nil {
				t.Log(err)
			}
		}
		select {
		case err := <-granted:
			if err != nil {
				t.Fatalf("after %d rounds of transfers: %v", rounds, err)
			}
			done = true
		case <-pace.C:
		}
	}
	t.Logf("granted %s after the death, with %d rounds of transfers", time.Since(at).Round(time.Millisecond), rounds)
}
