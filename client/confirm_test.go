package client

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestConfirmRefused: a lease whose confirmation is refused is not relied on, for it may be
// another's by now. The server may still have it for this session, and gets it back.
func TestConfirmRefused(t *testing.T) {
	for _, status := range []protocol.Status{
		protocol.StatusForbidden, protocol.StatusUnauthenticated, protocol.StatusInternal,
	} {
		t.Run(status.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				c := f.open(t)
				s := f.sessionIn(t, c, 0)
				name := nameIn(1)
				l, err := s.Acquire(bg, name)
				if err != nil {
					t.Fatal(err)
				}
				f.set(func() {
					f.on = func(fc *fakeConn, h protocol.Header) bool {
						if h.Kind != protocol.KindAcquire {
							return false
						}
						fc.fail(h, status)
						return true
					}
				})
				f.drop()
				select {
				case <-l.Context().Done():
				case <-time.After(time.Minute):
				}
				synctest.Wait()
				if n := f.count(protocol.KindRelease); n > 0 {
					t.Error("it is released before its work can stop")
				}
				time.Sleep(time.Minute)
				if err := l.Lost(); !errors.Is(err, ErrLeaseLost) || l.Held() || s.Err() != nil {
					t.Fatalf("the lease was lost by %v, and the session by %v", err, s.Err())
				}
				released := f.all(protocol.KindRelease)
				if len(released) != 1 || decode[protocol.Release](t, released[0].body).OrderID != l.Token() {
					t.Errorf("released %d times", len(released))
				}
				f.set(func() { f.on = nil })
				if again, err := s.TryAcquire(bg, name); err != nil || again == nil || again.Token() <= l.Token() {
					t.Errorf("acquired again: %v, %v", again, err)
				}
			})
		})
	}
}

// TestConfirmRefusedUntilKnown: a shard that does not know the session decides nothing about its
// lease. It is asked until it answers, and the lease is lost if it was taken away meanwhile.
func TestConfirmRefusedUntilKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.master[2] = 2
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		name := nameIn(1)
		l, err := s.Acquire(bg, name)
		if err != nil {
			t.Fatal(err)
		}
		refusals := 3 * (maxBadSessions + 1)
		f.set(func() {
			delete(f.holds, name)
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind != protocol.KindAcquire || refusals == 0 {
					return false
				}
				refusals--
				fc.fail(h, protocol.StatusBadSession)
				return true
			}
			for fc := range f.conns {
				if fc.instance == 2 {
					_ = fc.nc.Close()
				}
			}
		})
		time.Sleep(time.Minute)
		if err := l.Lost(); !errors.Is(err, ErrLeaseLost) || s.Err() != nil || refusals > 0 {
			t.Errorf("after all but %d refusals the lease was lost by %v, and the session by %v", refusals, err, s.Err())
		}
	})
}
