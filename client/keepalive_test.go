package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/rpc"
	"github.com/signalbox-dev/signalbox/protocol"
)

// TestOftenPinged: frequent keep-alives change neither how late a pong may come nor when a silent
// connection is given up.
func TestOftenPinged(t *testing.T) {
	t.Run("late pongs renew", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			c := f.open(t)
			s := f.sessionIn(t, c, 0, Timeout(10*time.Second), KeepAlive(10*time.Millisecond))
			f.set(func() {
				f.on = func(fc *fakeConn, h protocol.Header) bool {
					if h.Kind == protocol.KindPing { // the instance answers at once, and the home shard late
						fc.send(protocol.KindPong, h.ID, 0, nil)
						time.AfterFunc(2*time.Second, func() { fc.send(protocol.KindPong, h.ID, 1, nil) })
					}
					return h.Kind == protocol.KindPing || h.Kind == protocol.KindSessionAttach
				}
			})
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if r := s.Remaining(); s.State() != Attached || r <= 0 || r > 6500*time.Millisecond {
				t.Errorf("the session is %v: %v, and %s remain", s.State(), s.Err(), r)
			}
		})
	})
	t.Run("silence is noticed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			c := f.open(t)
			s := f.sessionIn(t, c, 0, Timeout(30*time.Minute), KeepAlive(10*time.Millisecond))
			f.set(func() {
				silent := f.attachedAt[s.id]
				f.on = func(fc *fakeConn, h protocol.Header) bool { return fc == silent }
			})
			time.Sleep(time.Minute)
			synctest.Wait()
			if n := f.count(protocol.KindHello); n != 2 || s.State() != Attached {
				t.Errorf("%d connections, and the session is %v", n, s.State())
			}
		})
	})
}

// TestSilentServer: a connection on which nothing comes back is given up in time to try another.
// The session may look for another at the same moment, and ask on the silent one first.
func TestSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		silent := map[*fakeConn]bool{}
		attaches := 0
		f.set(func() {
			for fc := range f.conns {
				silent[fc] = true
			}
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindSessionAttach && !silent[fc] {
					attaches++
				}
				return silent[fc]
			}
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if s.State() != Attached || s.Err() != nil {
			t.Fatal(s.State(), s.Err())
		}
		if attaches != 1 {
			t.Fatalf("%d attaches", attaches)
		}
	})
}

// TestSilentStream: a stream is opened elsewhere 10 s after its replica fell silent, although no
// session has the connection pinged and no request waits there.
func TestSilentStream(t *testing.T) {
	streams := map[protocol.Kind]func(ctx context.Context, n *Node){
		protocol.KindWatch: func(ctx context.Context, n *Node) {
			for range n.Watch(ctx, "x") {
			}
		},
		protocol.KindProcessWatch: func(ctx context.Context, n *Node) {
			decoder := func() rpc.Decoder {
				return func(protocol.Header) (any, rpc.Step, error) { return nil, rpc.Partial, nil }
			}
			o := newObject(nil, n, "x", protocol.ProcessBucket)
			req := &protocol.ProcessWatch{Node: n.id, Name: []byte("x")}
			for range o.Events(ctx, protocol.KindProcessWatch, req, decoder) {
			}
		},
	}
	for kind, watch := range streams {
		t.Run(kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				_, n := f.openNode(t)
				ctx, cancel := context.WithCancel(bg)
				defer cancel()
				go watch(ctx, n)
				time.Sleep(time.Minute) // of keep-alives
				synctest.Wait()
				if opened := f.count(kind); opened != 1 {
					t.Fatalf("%d streams while the server answers", opened)
				}
				silent := map[*fakeConn]bool{}
				f.set(func() {
					for fc := range f.conns {
						silent[fc] = true
					}
					f.on = func(fc *fakeConn, h protocol.Header) bool { return silent[fc] }
				})
				time.Sleep(11 * time.Second) // the time that it takes to connect is in it
				synctest.Wait()
				if opened := f.count(kind); opened != 2 {
					t.Errorf("%d streams since the server fell silent", opened-1)
				}
			})
		})
	}
}

// TestShortStreams: streams that come and go do not keep the connection from being pinged.
func TestShortStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		_, n := f.openNode(t)
		before := f.count(protocol.KindPing)
		for range 120 {
			ctx, cancel := context.WithTimeout(bg, 100*time.Millisecond)
			for range n.Watch(ctx, "x") {
			}
			cancel()
			time.Sleep(400 * time.Millisecond)
		}
		if pings := f.count(protocol.KindPing) - before; pings < 3 {
			t.Errorf("%d pings in a minute", pings)
		}
	})
}
