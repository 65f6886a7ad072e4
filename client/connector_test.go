package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/dial"
	"github.com/signalbox-dev/signalbox/protocol"
)

// TestHelloRefused: what trying again does not change is said at once; the rest is tried until the
// context ends.
func TestHelloRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		for _, x := range []struct {
			reply func(fc *fakeConn, h protocol.Header)
			want  error
			took  time.Duration
		}{
			{func(fc *fakeConn, h protocol.Header) { fc.fail(h, protocol.StatusUnauthenticated) }, Unauthenticated, 0},
			{func(fc *fakeConn, h protocol.Header) {
				fc.send(protocol.KindGoodbye, 0, 0, &protocol.Goodbye{Status: protocol.StatusUnsupported})
			}, protocol.StatusUnsupported, 0},
			{func(fc *fakeConn, h protocol.Header) {
				fc.reply(h, &protocol.HelloReply{Version: 99, Cluster: "fake"})
			}, protocol.StatusUnsupported, 0},
			{func(fc *fakeConn, h protocol.Header) { fc.fail(h, protocol.StatusOverloaded) }, Overloaded, openTimeoutDefault},
			{func(fc *fakeConn, h protocol.Header) { fc.sendBytes([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) }, ErrHandshake, 0},
			{func(fc *fakeConn, h protocol.Header) {}, context.DeadlineExceeded, openTimeoutDefault},
		} {
			f.set(func() {
				f.on = func(fc *fakeConn, h protocol.Header) bool {
					x.reply(fc, h)
					return true
				}
			})
			begin := time.Now()
			_, err := Open(bg, Config{Endpoints: []string{"1"}, Dial: f.dial, clock: bubbleClock{}})
			if !errors.Is(err, x.want) || time.Since(begin) != x.took {
				t.Errorf("%v after %s, want %v after %s", err, time.Since(begin), x.want, x.took)
			}
			f.drop()
		}
		if _, err := Open(bg, Config{}); err == nil {
			t.Error("no endpoint is no error")
		}
	})
}

// TestEndpoints: one that answers is enough, and another cluster is not taken for this one.
func TestEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t, func(cfg *Config) { cfg.Endpoints = []string{"nonsense", "2", "1"} })
		n, err := c.Node(bg, "/n")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.Describe(bg, "x"); err != nil {
			t.Fatal(err)
		}
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindHello {
					fc.reply(h, &protocol.HelloReply{Version: protocol.Version, Cluster: "another",
						Instance: fc.instance, Window: 1, MaxFrame: 1000})
				}
				return h.Kind == protocol.KindHello
			}
		})
		f.drop()
		synctest.Wait()
		if _, err := n.Describe(bg, "x"); err == nil {
			t.Fatal("another cluster answered")
		}
	})
}

// TestOtherCluster: an instance of another cluster is refused, whichever end finds it. It is named
// before an endpoint that is down. It does no harm to a client that was connected, where only one
// instance's address has changed hands.
func TestOtherCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		other := map[uint64]bool{1: true} // instances that another cluster has now
		var meant []string
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind != protocol.KindHello {
					return other[fc.instance]
				}
				hello := decode[protocol.Hello](t, h.Body)
				meant = append(meant, hello.Cluster)
				switch {
				case !other[fc.instance]:
					return false
				case hello.Cluster == "":
					fc.reply(h, &protocol.HelloReply{Version: protocol.Version, Cluster: "another", Instance: fc.instance,
						Window: 1, MaxFrame: 1000})
				default:
					fc.fail(h, protocol.StatusPreconditionFailed)
				}
				return true
			}
		})
		down := map[string]bool{"down": true}
		dial := func(ctx context.Context, address string) (net.Conn, error) {
			if down[address] {
				return nil, errors.New("connection refused")
			}
			return f.dial(ctx, address)
		}
		open := func(endpoints ...string) (*Client, error) {
			return Open(bg, Config{Endpoints: endpoints, Cluster: "fake", Dial: dial, clock: bubbleClock{}})
		}
		began := time.Now()
		if _, err := open("1"); !errors.Is(err, ErrOtherCluster) || !errors.Is(err, ErrHandshake) || errors.Is(err, ErrUnreachable) ||
			time.Since(began) > 0 {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		for _, list := range [][]string{{"1", "down"}, {"down", "1"}} {
			if _, err := open(list...); !errors.Is(err, ErrOtherCluster) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v: %v", list, err)
			}
		}
		c, err := open("down", "1", "2")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.CloseWithoutRelease(); f.drop() })
		if len(meant) == 0 || slices.ContainsFunc(meant, func(m string) bool { return m != "fake" }) {
			t.Errorf("hellos named %q", meant)
		}
		// One that is reached by the map alone, and an endpoint.
		var permanent *permanentError
		if _, err := c.connector(1, "1").get(bg, nil); !errors.Is(err, ErrOtherCluster) || !errors.Is(err, ErrUnreachable) ||
			errors.As(err, &permanent) {
			t.Errorf("an instance's address: %v", err)
		}
	})
}

// silentAt has the fake's instances answer nothing at some addresses, as machines that are off.
func silentAt(f *fake, addresses ...string) func(ctx context.Context, address string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		if slices.Contains(addresses, address) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		return f.dial(ctx, address)
	}
}

// TestSilentAddresses: two of five machines are off, and a client with defaults connects, starts a
// session, and connects again; also if all five have one name.
func TestSilentAddresses(t *testing.T) {
	five := func(f *fake) {
		f.master = map[uint64]uint64{1: 3, 2: 4, 3: 5, 4: 3}
		f.replicas = []uint64{1, 2, 3, 4, 5}
	}
	t.Run("endpoints", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			five(f)
			began := time.Now()
			c := f.open(t, func(cfg *Config) {
				cfg.Endpoints, cfg.Dial = []string{"1", "2", "3", "4", "5"}, silentAt(f, "1", "2")
			})
			n, err := c.Node(bg, "/n")
			if took := time.Since(began); err != nil || took != 2*dial.Stagger {
				t.Fatalf("connected after %s: %v", took, err)
			}
			f.drop()
			synctest.Wait()
			began = time.Now()
			if _, err := n.Describe(bg, "x"); err != nil || time.Since(began) > reconnectMax {
				t.Errorf("connected again after %s: %v", time.Since(began), err)
			}
			f.drop()
			synctest.Wait()
			began = time.Now()
			if _, err := c.ServerInfo(bg); err != nil || time.Since(began) > 2*reconnectBase+4*dial.Stagger {
				t.Errorf("any instance after %s: %v", time.Since(began), err)
			}
		})
	})
	t.Run("session", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			five(f)
			began := time.Now()
			cfg := Config{Endpoints: []string{"1", "2", "3", "4", "5"}, Dial: silentAt(f, "1", "2"), clock: bubbleClock{}}
			s, err := OpenSession(bg, cfg, "/n")
			if took := time.Since(began); err != nil || took != 2*dial.Stagger {
				t.Fatalf("started after %s: %v", took, err)
			}
			s.Client().CloseWithoutRelease()
			f.drop()
		})
	})
	t.Run("name", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			off := netip.MustParseAddr("10.0.0.1")
			began := time.Now()
			c := f.open(t, func(cfg *Config) {
				cfg.Endpoints = []string{"signalbox:7070"}
				cfg.lookup = func(_ context.Context, host string) ([]netip.Addr, error) {
					if host != "signalbox" {
						return nil, fmt.Errorf("no host %s", host)
					}
					return []netip.Addr{off, off.Next(), netip.MustParseAddr("10.0.0.3")}, nil
				}
				cfg.Dial = func(ctx context.Context, address string) (net.Conn, error) {
					if address == "10.0.0.3:7070" {
						address = "1"
					}
					return silentAt(f, "10.0.0.1:7070", "10.0.0.2:7070")(ctx, address)
				}
			})
			if took := time.Since(began); took != 2*dial.Stagger {
				t.Errorf("connected after %s", took)
			}
			c.CloseWithoutRelease()
		})
	})
}

// TestOvertakenConnection: of two connections that are made in one moment one counts: the session
// lives there, and no second connection to an instance is left.
func TestOvertakenConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		late := func(ctx context.Context, address string) (net.Conn, error) {
			if address == "2" {
				time.Sleep(dial.Stagger) // it does not heed ctx, and is there in the same moment
			}
			return f.dial(ctx, address)
		}
		s, err := OpenSession(bg, Config{Endpoints: []string{"2", "1"}, clock: bubbleClock{}, Dial: late}, "/n")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Acquire(bg, "x"); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		open := map[uint64]int{}
		f.mu.Lock()
		for fc := range f.conns {
			select {
			case <-fc.closed:
			default:
				open[fc.instance]++
			}
		}
		f.mu.Unlock()
		if open[1] != 1 || open[2] > 1 {
			t.Errorf("connections by instance: %v", open)
		}
		s.Client().CloseWithoutRelease()
		f.drop()
	})
}

// TestLeaderSilentOthersOff: who leads instead of a silent instance is learned from the one that is
// up, however many are off.
func TestLeaderSilentOthersOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.replicas = []uint64{1, 2, 3, 4, 5, 6, 7, 8}
		c := f.open(t, func(cfg *Config) { cfg.Dial = silentAt(f, "2", "3", "4", "5", "6", "7") })
		began := time.Now()
		f.set(func() {
			for s := range f.master {
				f.master[s] = 8
			}
			f.version++
		})
		c.findLeader(1)
		if took := time.Since(began); took > 7*dial.Stagger || c.routes.Load().byShard[1].master.Load() != 8 {
			t.Errorf("after %s shard 1 is looked for at %d", took, c.routes.Load().byShard[1].master.Load())
		}
	})
}

// TestBackoff: with nobody there, tries spread out, and stay below one a second or so.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		ctx, cancel := context.WithTimeout(bg, 10*time.Minute)
		defer cancel()
		dial := func(ctx context.Context, a string) (net.Conn, error) {
			tries++
			return nil, errors.New("nobody there")
		}
		_, err := Open(ctx, Config{Endpoints: []string{"1"}, clock: bubbleClock{}, Dial: dial})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if tries < 120 || tries > 600 {
			t.Fatalf("%d tries in ten minutes, with up to 5 s between them", tries)
		}
	})
}

// TestUnreachableAtFirst: a context that ends during the second attempt does not hide why the first
// one failed.
func TestUnreachableAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(bg, 3*time.Second)
		defer cancel()
		tries := 0
		nobody := errors.New("nobody there")
		dial := func(ctx context.Context, a string) (net.Conn, error) {
			if tries++; tries == 1 {
				return nil, nobody
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		_, err := Open(ctx, Config{Endpoints: []string{"1"}, clock: bubbleClock{}, Dial: dial})
		for _, want := range []error{context.DeadlineExceeded, ErrUnreachable, nobody} {
			if !errors.Is(err, want) {
				t.Errorf("%v is no %q", err, want)
			}
		}
	})
}

// TestFormerAddresses: of an instance that comes back at another address again and again, the
// client keeps the one that worked last, what the map says now, and its own endpoints.
func TestFormerAddresses(t *testing.T) {
	c := &cluster{dialer: &dialer{cfg: Config{Endpoints: []string{"10.0.0.1:7070", "10.0.0.2:7070"}}}}
	l := &connector{c: c, addresses: []string{"10.1.0.1:7070", "10.0.0.2:7070"}}
	for i := range 50 {
		l.know(fmt.Sprintf("10.2.0.%d:7070", i), "")
	}
	want := []string{"10.1.0.1:7070", "10.0.0.2:7070", "10.2.0.49:7070"}
	if !slices.Equal(l.addresses, want) {
		t.Errorf("it knows %q, want %q", l.addresses, want)
	}
}
