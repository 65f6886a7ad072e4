package client_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// gate freezes the connections of one client: what is sent and what arrives waits.
type gate struct {
	mu     sync.Mutex
	opened chan struct{} // closed while open
}

func newGate() *gate {
	g := &gate{opened: make(chan struct{})}
	close(g.opened)
	return g
}

func (g *gate) freeze() (thaw func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	opened := make(chan struct{})
	g.opened = opened
	return func() { close(opened) }
}

func (g *gate) dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", address)
	return &gatedConn{Conn: nc, g: g, closed: make(chan struct{})}, err
}

type gatedConn struct {
	net.Conn
	g      *gate
	once   sync.Once
	closed chan struct{}
}

func (c *gatedConn) pass() {
	c.g.mu.Lock()
	opened := c.g.opened
	c.g.mu.Unlock()
	select {
	case <-opened:
	case <-c.closed:
	}
}

func (c *gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.pass()
	return n, err
}

func (c *gatedConn) Write(b []byte) (int, error) {
	c.pass()
	return c.Conn.Write(b)
}

func (c *gatedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// TestNoTwoHolders: while links break, one client's freeze for longer than the sessions' timeout,
// and the server dies and comes back, nobody believes to hold what another was granted later, and
// tokens rise with every grant.
func TestNoTwoHolders(t *testing.T) {
	t.Parallel()
	length := 2 * time.Second
	if form.Is(form.Full) {
		length = form.Of(4*time.Second, time.Minute)
	}
	srv := servertest.Start(t, servertest.RealTime())
	selfCheck, grace := 500*time.Millisecond, 1500*time.Millisecond
	_, err := admin.Nodes(dial(t, srv)).Create(testContext(t), "/belief", admin.NodeConfig{SelfCheckPeriod: &selfCheck, GracePeriod: &grace})
	must(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), length+await.Limit)
	defer cancel()
	var mu sync.Mutex
	newest := map[string]uint64{}
	grants, lost := 0, 0
	believe := func(name string, l *client.Lease, granted bool) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case granted && (l.Token() == newest[name] || l.Token() < newest[name] && l.Held()):
			t.Errorf("%s: token %d was granted after %d", name, l.Token(), newest[name])
		case granted: // a smaller one may be told of late, when it is over
			newest[name] = max(newest[name], l.Token())
			grants++
		case l.Token() < newest[name] && l.Held():
			t.Errorf("%s: token %d is believed in, and %d was granted", name, l.Token(), newest[name])
		}
	}
	// work looks again and again whether a lease is believed in: belief ends by the clock.
	work := func(name string, l *client.Lease, length time.Duration) {
		for end := time.Now().Add(length); l.Held() && time.Now().Before(end); pause(ctx, time.Millisecond) {
			believe(name, l, false)
		}
	}
	var wg sync.WaitGroup
	var gates []*gate
	for w := range 6 {
		g := newGate()
		gates = append(gates, g)
		wg.Go(func() {
			c, err := client.Open(ctx, client.Config{Endpoints: []string{srv.Addr()}, Dial: g.dial})
			if err != nil {
				if ctx.Err() == nil {
					t.Error(err)
				}
				return
			}
			defer c.CloseWithoutRelease()
			for ctx.Err() == nil {
				s, err := c.Session(ctx, "/belief", client.Timeout(time.Second))
				if err != nil {
					continue
				}
				for s.Err() == nil && ctx.Err() == nil {
					name := fmt.Sprint("belief", w%2)
					l, err := s.Mutex(name).Lock(ctx)
					if err != nil {
						continue
					}
					believe(name, l, true)
					work(name, l, rand.N(40*time.Millisecond))
					if rand.IntN(4) > 0 {
						_ = l.Release(ctx)
						continue
					}
					if rand.IntN(2) == 0 {
						_ = s.Close(ctx)
					} else {
						// Hold on to it, whatever happens, for as long as it is believed in.
						work(name, l, rand.N(3*time.Second))
						_ = l.Release(ctx)
					}
					if l.Lost() != nil {
						mu.Lock()
						lost++
						mu.Unlock()
					}
				}
			}
		})
	}
	enough := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return grants >= 10
	}
	faults := 0
	for began := time.Now(); ctx.Err() == nil && (time.Since(began) < length || faults < 3 || !enough()); faults++ {
		switch rand.IntN(8) {
		case 0:
			srv.DropConnections()
		case 1:
			srv.Kill()
			srv.Restart()
		default:
			thaw := gates[rand.IntN(len(gates))].freeze()
			pause(ctx, rand.N(2*time.Second))
			thaw()
		}
		pause(ctx, rand.N(400*time.Millisecond))
	}
	cancel()
	wg.Wait()
	t.Logf("%d grants, %d faults, %d leases lost", grants, faults, lost)
	if grants < 10 || faults < 3 {
		t.Error("too little happened to mean anything")
	}
}

// pause lets time pass, which these tests are about: what is held and frozen ends by the clock.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// TestFrozenHolder: at the moment somebody else is granted what a frozen client holds, that client
// does not believe in it any more.
func TestFrozenHolder(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	for i := range 3 {
		name := fmt.Sprint("frozen-", i)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate()
			frozen, err := client.Open(testContext(t), client.Config{Endpoints: []string{srv.Addr()}, Dial: g.dial})
			must(t, err)
			t.Cleanup(frozen.CloseWithoutRelease)
			a := session(t, frozen, client.Timeout(3*time.Second))
			l := acquire(t, a, name, client.Exclusive())
			waiting, _ := queue(t, session(t, dial(t, srv)), name, client.Exclusive())
			thaw := g.freeze()
			next := waiting.must(t)
			if l.Held() || l.Context().Err() == nil {
				t.Error("believed in although granted on")
			}
			thaw()
			<-a.Context().Done()
			release(t, next)
			release(t, acquire(t, session(t, frozen), name, client.Exclusive()))
		})
	}
}
