package client

import (
	"testing"
	"testing/synctest"
	"time"

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
