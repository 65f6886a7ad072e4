package client

import (
	"errors"
	"fmt"
	"slices"
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

// TestConfirmOfASilentShard: leases of a shard that answers nothing keep no lease of another shard
// from being confirmed, neither at once nor when its connection is lost later.
func TestConfirmOfASilentShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.window = 4 * maxConcurrentConfirms
		f.master[3] = 2
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		for i, left := 0, 2*maxConcurrentConfirms; left > 0; i++ {
			name := fmt.Sprint("silent", i)
			if protocol.Bucket(7, []byte(name), 4) != 1 {
				continue
			}
			left--
			if _, err := s.Acquire(bg, name); err != nil {
				t.Fatal(err)
			}
		}
		l, err := s.Acquire(bg, nameIn(2))
		if err != nil {
			t.Fatal(err)
		}
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool { return h.Kind == protocol.KindAcquire && h.Arg == 1 }
		})
		pause := func() {
			time.Sleep(5 * time.Second) // of the bubble
			synctest.Wait()
		}
		cut := func(instance uint64) {
			f.set(func() {
				for fc := range f.conns {
					if fc.instance == instance {
						_ = fc.nc.Close()
						delete(f.conns, fc)
					}
				}
			})
			pause()
		}
		cut(1)
		cut(2)
		if !l.Held() {
			t.Fatal(l.Lost())
		}
		other, err := s.Acquire(bg, nameIn(3))
		if err != nil {
			t.Fatal(err)
		}
		f.set(func() { delete(f.holds, l.Name()) })
		cut(2)
		if err := l.Lost(); !errors.Is(err, ErrLeaseLost) || s.Err() != nil {
			t.Errorf("the lease was lost by %v, and the session by %v", err, s.Err())
		}
		// The bucket that is not answered moves away from shard 2, and another one moves there.
		f.set(func() {
			delete(f.holds, other.Name())
			f.version, f.moved = 2, map[uint64]uint64{1: 4, 3: 2}
		})
		if _, err := c.refreshMap(bg, c.routes.Load()); err != nil {
			t.Fatal(err)
		}
		pause()
		if err := other.Lost(); !errors.Is(err, ErrLeaseLost) || s.Err() != nil {
			t.Errorf("the lease that moved was lost by %v, and the session by %v", err, s.Err())
		}
	})
}

// TestGrantBehindAMove: a grant that is read after the map that moved its bucket is asked for again
// at the bucket's shard, under the same number: that one must know where to report its loss.
func TestGrantBehindAMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		name := nameIn(1)
		var answer func()
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind != protocol.KindAcquire || answer != nil {
					return false
				}
				answer = func() { fc.answer(h) }
				return true
			}
		})
		acquired := make(chan *Lease, 1)
		go func() {
			l, err := s.Acquire(bg, name)
			if err != nil {
				t.Error(err)
			}
			acquired <- l
		}()
		synctest.Wait()
		f.set(func() { f.version, f.moved = 2, map[uint64]uint64{1: 3} })
		if _, err := c.refreshMap(bg, c.routes.Load()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		f.set(func() { answer() })
		l := <-acquired
		var sent []uint64
		for _, r := range f.all(protocol.KindAcquire) {
			sent = append(sent, decode[protocol.Acquire](t, r.body).Seq)
		}
		if !slices.Equal(sent, []uint64{1, 1}) || l.Token() != 1 || l.route.shard != 3 || !l.Held() {
			t.Errorf("acquired by the numbers %d with token %d at shard %d: %v", sent, l.Token(), l.route.shard, l.Lost())
		}
	})
}
