package driver_test

import (
	"context"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// instantServer is a connection to a server in the memory of the client: it answers what is written
// before Write returns, and allocates nothing for an acquire and a release.
type instantServer struct {
	net.Conn // nil
	mu       sync.Mutex
	cond     *sync.Cond
	out      []byte
	over     bool
	acquired protocol.AcquireReply
	released protocol.ReleaseReply
}

func newInstantServer(context.Context, string) (net.Conn, error) {
	c := &instantServer{}
	c.cond = sync.NewCond(&c.mu)
	return c, nil
}

func (c *instantServer) answer(h protocol.Header) protocol.Message {
	switch h.Kind {
	case protocol.KindHello:
		return &protocol.HelloReply{
			Version: protocol.Version, Cluster: "c", Instance: 1, Window: 4096, MaxFrame: protocol.MaxFrameLen, MapVersion: 1,
		}
	case protocol.KindMap:
		return &protocol.MapReply{
			Version: 1, Cluster: "c", Instances: []protocol.MapInstance{{ID: 1, Address: "1"}},
			Shards: []protocol.MapShard{{ID: 1, Master: 1, Replicas: []uint64{1}}},
			Tiers:  []protocol.MapTier{{Buckets: 4096, Runs: []protocol.MapRun{{Count: 4096, Shard: 1}}}},
		}
	case protocol.KindSessionStart:
		return &protocol.SessionReply{Session: 1, Epoch: 1, Shard: 1, Timeout: 1_800_000, Grace: 10_000, Node: 7}
	case protocol.KindAcquire:
		c.acquired.State = protocol.Acquired
		c.acquired.OrderID++
		return &c.acquired
	case protocol.KindRelease:
		c.released.Released = true
		return &c.released
	}
	return &protocol.Empty{}
}

func (c *instantServer) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for rest := b; len(rest) > 0; {
		frame, n, err := protocol.SplitFrame(rest, protocol.MaxFrameLen)
		if err != nil || n == 0 {
			panic("the client wrote no whole frame")
		}
		rest = rest[n:]
		h, err := protocol.ParseFrame(frame)
		if err != nil {
			panic(err)
		}
		if h.Kind != protocol.KindPing {
			c.out = protocol.AppendFrame(c.out, h.Kind|protocol.KindReply, h.ID, 0, c.answer(h))
		}
	}
	c.cond.Signal()
	return len(b), nil
}

func (c *instantServer) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.out) == 0 && !c.over {
		c.cond.Wait()
	}
	if c.over {
		return 0, net.ErrClosed
	}
	n := copy(b, c.out)
	c.out = append(c.out[:0], c.out[n:]...)
	return n, nil
}

func (c *instantServer) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.cond.Broadcast()
	return nil
}

func (c *instantServer) SetDeadline(time.Time) error { return nil }

// clientMemory is what a client may allocate until it works, with its one connection, its map of 4,096
// buckets and its session, the server's end of this test included. A process may have thousands of
// clients.
const clientMemory = 16 << 10 // bytes

// instant is a session on such a server.
func instant(t *testing.T) *driver.Session {
	t.Helper()
	d := driver.New(driver.Config{Endpoints: []string{"1"}, Name: "test", Dial: newInstantServer})
	t.Cleanup(d.Close)
	s := d.NewSession()
	s.Path, s.Timeout = "/n", 30*time.Minute
	if r := d.ConnectWith(t.Context(), s); r.Err != nil {
		t.Fatal(r.Err)
	}
	return s
}

// pair acquires and releases.
func pair(t *testing.T, ctx context.Context, s *driver.Session) {
	l, err := acquire(ctx, s, "a name of usual length")
	if err == nil {
		err = l.Release(ctx).Err
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestClientMemory opens clients that work, and looks at what they have allocated.
func TestClientMemory(t *testing.T) {
	if form.Race {
		t.Skip("the race detector allocates")
	}
	const clients = 50
	var before, after runtime.MemStats
	pair(t, t.Context(), instant(t)) // what a process has once
	runtime.ReadMemStats(&before)
	for range clients {
		pair(t, t.Context(), instant(t))
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / clients; each > clientMemory {
		t.Errorf("a client allocates %d bytes before it works; the bound is %d", each, clientMemory)
	} else {
		t.Logf("a client allocates %d bytes before it works", each)
	}
}

// TestAllocations holds the budget of an acquire and its release: the lease.
func TestAllocations(t *testing.T) {
	if form.Race {
		t.Skip("the race detector allocates")
	}
	s, ctx := instant(t), context.Background()
	const budget = 1
	if allocs := testing.AllocsPerRun(2000, func() { pair(t, ctx, s) }); allocs > budget {
		t.Errorf("%.1f allocations for an acquire and a release; the budget is %d", allocs, budget)
	} else {
		t.Logf("%.1f allocations for an acquire and a release", allocs)
	}
}
