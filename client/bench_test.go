package client

import (
	"context"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// instantConn is a server in the memory of the client: it answers what is written before Write
// returns, and allocates nothing in steady state, so that what is measured is the client's.
type instantConn struct {
	deafConn
	mu     sync.Mutex
	cond   *sync.Cond
	out    []byte
	over   bool
	orders uint64
	acq    protocol.AcquireReply
	rel    protocol.ReleaseReply
	desc   protocol.DescribeReply
}

func newInstantConn() *instantConn {
	c := &instantConn{}
	c.cond = sync.NewCond(&c.mu)
	return c
}

func (c *instantConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for rest := b; len(rest) > 0; {
		frame, n, err := protocol.SplitFrame(rest, protocol.MaxFrameLen)
		if err != nil || n == 0 {
			panic("client wrote no whole frame")
		}
		rest = rest[n:]
		h, err := protocol.ParseFrame(frame)
		if err != nil {
			panic(err)
		}
		var reply protocol.Message
		switch h.Kind {
		case protocol.KindAcquire:
			c.orders++
			c.acq = protocol.AcquireReply{State: protocol.Acquired, OrderID: c.orders}
			reply = &c.acq
		case protocol.KindRelease:
			reply = &c.rel
		case protocol.KindDescribe:
			reply = &c.desc
		case protocol.KindPing:
			continue
		}
		c.out = protocol.AppendFrame(c.out, h.Kind|protocol.KindReply, h.ID, 0, reply)
	}
	c.cond.Signal()
	return len(b), nil
}

func (c *instantConn) Read(b []byte) (int, error) {
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

func (c *instantConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.cond.Signal()
	return nil
}

// instant is a session on such a server.
func instant(t testing.TB) *Session {
	c := newClient(Config{Endpoints: []string{"x"}, clock: systemClock{}, Logger: discard()})
	if err := c.useMap(nil, &protocol.MapReply{
		Version: 1, Shards: []protocol.MapShard{{ID: 1, Master: 1}},
		Tiers: []protocol.MapTier{{Buckets: 4096, Runs: []protocol.MapRun{{Count: 4096, Shard: 1}}}},
	}, nil); err != nil {
		t.Fatal(err)
	}
	cn := newConn(c, newInstantConn(), protocol.HelloReply{Instance: 1, Window: 4096, MaxFrame: protocol.MaxFrameLen}, nil, c.clock)
	cn.serve()
	c.adopt(cn, "x")
	n := nodeOf(c, "/n", &protocol.NodeInfo{ID: 7, Config: protocol.DefaultNodeConfig()})
	s := newSession(&n, sessionOptions{timeout: DefaultTimeout})
	if err := s.activate(s.clockBeforeStart(), cn,
		&protocol.SessionReply{Session: 1, Epoch: 1, Shard: 1, Timeout: 1_800_000}, false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	return s
}

// silentObserver follows acquires if it is to, and does nothing with them.
type silentObserver struct{ follows bool }

func (o *silentObserver) AcquireStarted(context.Context, AcquireStart) AcquireObserver {
	if !o.follows {
		return nil
	}
	return o
}
func (*silentObserver) AcquireEnded(AcquireEnd) {}
func (*silentObserver) HoldEnded(HoldEnd)       {}

// observers are the cases of what an observer costs.
var observers = []struct {
	name     string
	observer Observer
	allocs   float64 // of an acquire and its release, at most: the lease and its entry
}{{"none", nil, 3}, {"not following", &silentObserver{}, 3}, {"following", &silentObserver{true}, 4}}

// TestAllocations holds the budget of an acquire and its release.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, o := range observers {
		s := instant(t)
		s.c.cfg.Observer = o.observer
		ctx := context.Background()
		allocs := testing.AllocsPerRun(2000, func() {
			l, err := s.Acquire(ctx, "a name of usual length")
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Release(ctx); err != nil {
				t.Fatal(err)
			}
		})
		if allocs > o.allocs {
			t.Errorf("observer %s: %.1f allocations for an acquire and a release, at most %.0f are in the budget", o.name, allocs, o.allocs)
		}
		t.Logf("observer %s: %.1f allocations for an acquire and a release", o.name, allocs)
	}
}

// BenchmarkObserver is an acquire and its release, with and without an observer.
func BenchmarkObserver(b *testing.B) {
	for _, o := range observers {
		b.Run(o.name, func(b *testing.B) {
			s := instant(b)
			s.c.cfg.Observer = o.observer
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				l, err := s.Acquire(ctx, "a name of usual length")
				if err == nil {
					err = l.Release(ctx)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAcquireRelease(b *testing.B) {
	for _, callers := range []int{1, 64, 1024} {
		b.Run(strconv.Itoa(callers), func(b *testing.B) {
			s := instant(b)
			ctx := context.Background()
			b.ReportAllocs()
			var wg sync.WaitGroup
			b.ResetTimer()
			for w := range callers {
				wg.Go(func() {
					name := "name" + strconv.Itoa(w)
					for i := w; i < b.N; i += callers {
						l, err := s.Acquire(ctx, name)
						if err == nil {
							err = l.Release(ctx)
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
