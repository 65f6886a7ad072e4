package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// withLease runs a test on a fresh lease; hold makes the fake keep back the answers of a kind, until it is called with 0.
func withLease(t *testing.T, test func(t *testing.T, f *fake, s *Session, l *Lease, hold func(protocol.Kind))) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		l, err := s.Acquire(bg, nameIn(1), Count(3), Data("d"))
		if err != nil {
			t.Fatal(err)
		}
		type late struct {
			fc *fakeConn
			h  protocol.Header
		}
		var held []late
		hold := func(kind protocol.Kind) {
			f.set(func() {
				for _, x := range held {
					x.fc.answer(x.h)
				}
				held = nil
				f.on = func(fc *fakeConn, h protocol.Header) bool {
					// The fake's acquires are new ones; a change of what is held keeps the order id.
					if h.Kind == protocol.KindAcquire {
						m := decode[protocol.Acquire](t, h.Body)
						f.memory[m.Seq] = f.holds[string(m.Name)]
					}
					if h.Kind == kind && kind != 0 {
						held = append(held, late{fc, h})
						return true
					}
					return false
				}
			})
		}
		test(t, f, s, l, hold)
	})
}

func brief() (context.Context, context.CancelFunc) { return context.WithTimeout(bg, time.Second) }

// TestChangeInTheBackground: a change whose context ends goes on, and a release and an acquire come behind it.
func TestChangeInTheBackground(t *testing.T) {
	withLease(t, func(t *testing.T, f *fake, s *Session, l *Lease, hold func(protocol.Kind)) {
		hold(protocol.KindAcquire)
		ctx, cancel := brief()
		defer cancel()
		if err := l.Lower(ctx, 2); !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		ctx, cancel = brief()
		defer cancel()
		if err := l.UpdateData(ctx, nil); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrOutcomeUnknown) {
			t.Fatal("it never had its turn:", err)
		}
		if l.Count() != 3 || !l.Held() {
			t.Fatal(l.Count())
		}
		hold(0)
		synctest.Wait()
		if l.Count() != 2 || l.Lost() != nil {
			t.Fatal(l.Count(), l.Lost())
		}
		last := f.all(protocol.KindAcquire)
		if m := decode[protocol.Acquire](t, last[len(last)-1].body); m.Count != 2 || string(m.Data) != "d" || m.Timeout != 0 {
			t.Fatalf("%+v", m)
		}

		// A release overtakes who waits for the name, and waits for the change under way.
		hold(protocol.KindAcquire)
		ctx, cancel = brief()
		defer cancel()
		_ = l.UpdateData(ctx, []byte("e"))
		next := make(chan error, 1)
		go func() {
			_, err := s.Acquire(bg, l.Name())
			next <- err
		}()
		synctest.Wait()
		ctx, cancel = brief()
		defer cancel()
		if err := l.Release(ctx); !errors.Is(err, context.DeadlineExceeded) || l.Held() {
			t.Fatal(err)
		}
		hold(protocol.KindRelease)
		synctest.Wait()
		if n := f.count(protocol.KindRelease); n != 1 {
			t.Fatal(n)
		}
		f.set(func() { f.on = nil })
		f.drop() // and its answer is lost
		if err := <-next; err != nil {
			t.Fatal(err)
		}
	})
}

// TestReleaseBehindAChange: a change that was sent is settled before the lease is released, so that no late copy of it, which is an acquire, comes behind the release.
func TestReleaseBehindAChange(t *testing.T) {
	withLease(t, func(t *testing.T, f *fake, s *Session, l *Lease, hold func(protocol.Kind)) {
		hold(protocol.KindAcquire)
		ctx, cancel := brief()
		defer cancel()
		if err := l.UpdateData(ctx, []byte("e")); !errors.Is(err, ErrOutcomeUnknown) {
			t.Fatal(err)
		}
		ctx, cancel = brief()
		defer cancel()
		if err := l.Release(ctx); !errors.Is(err, context.DeadlineExceeded) || l.Held() {
			t.Fatal(err)
		}
		f.drop() // and whatever was to come on the connection
		synctest.Wait()
		if n := f.count(protocol.KindRelease); n != 0 {
			t.Fatalf("%d releases before the change is settled", n)
		}
		hold(0)
		if _, err := s.Acquire(bg, l.Name()); err != nil {
			t.Fatal(err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		var order []protocol.Kind
		for _, r := range f.log {
			if r.kind == protocol.KindAcquire || r.kind == protocol.KindRelease {
				order = append(order, r.kind)
			}
		}
		n := len(order)
		if order[n-1] != protocol.KindAcquire || order[n-2] != protocol.KindRelease || order[n-3] != protocol.KindAcquire || slices.Contains(order[:n-2], protocol.KindRelease) {
			t.Errorf("%v", order)
		}
	})
}

// TestChangeOfALostLease: the server has nothing of ours to change. What it granted instead is given back.
func TestChangeOfALostLease(t *testing.T) {
	withLease(t, func(t *testing.T, f *fake, s *Session, l *Lease, hold func(protocol.Kind)) {
		f.set(func() { delete(f.holds, l.Name()) })
		if err := l.UpdateData(bg, nil); !errors.Is(err, ErrLeaseLost) || !errors.Is(l.Lost(), ErrLeaseLost) || l.Context().Err() == nil {
			t.Fatal(err, l.Lost())
		}
		synctest.Wait()
		if r := f.all(protocol.KindRelease); len(r) != 1 || decode[protocol.Release](t, r[0].body).OrderID != 2 {
			t.Fatal(r)
		}
		if err := l.Lower(bg, 1); !errors.Is(err, ErrLeaseLost) {
			t.Fatal(err)
		}
		if _, err := s.Acquire(bg, l.Name()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestReleaseWithoutALease: a session gives back what it has, by name.
func TestReleaseWithoutALease(t *testing.T) {
	withLease(t, func(t *testing.T, f *fake, s *Session, l *Lease, hold func(protocol.Kind)) {
		for _, want := range []bool{true, false} {
			f.set(func() {
				f.on = func(fc *fakeConn, h protocol.Header) bool {
					if h.Kind == protocol.KindRelease {
						fc.reply(h, &protocol.ReleaseReply{Released: want})
					}
					return h.Kind == protocol.KindRelease
				}
			})
			if released, err := s.Release(bg, l.Name()); released != want || err != nil {
				t.Fatal(released, err)
			}
		}
		if l.Held() || l.Lost() != nil {
			t.Fatal(l.Lost())
		}
		if m := decode[protocol.Release](t, f.all(protocol.KindRelease)[0].body); m.OrderID != 0 {
			t.Fatal(m.OrderID)
		}
	})
}

// TestTurns: waiting for a turn at a name ends with the context, with the session, and passes the turn on.
func TestTurns(t *testing.T) {
	withLease(t, func(t *testing.T, f *fake, s *Session, l *Lease, hold func(protocol.Kind)) {
		hold(protocol.KindAcquire)
		busy := make(chan error, 1)
		go func() { busy <- l.UpdateData(bg, nil) }()
		synctest.Wait()
		if other, err := s.TryAcquire(bg, l.Name()); other != nil || err != nil {
			t.Fatal("a try waits for nobody:", other, err)
		}
		ctx, cancel := brief()
		defer cancel()
		if _, err := s.Acquire(ctx, l.Name()); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		waiting := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := s.Acquire(bg, l.Name())
				waiting <- err
			}()
		}
		synctest.Wait()
		hold(0)
		if err := <-busy; err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-waiting; !errors.Is(err, ErrAlreadyHeld) {
				t.Fatal(err)
			}
		}
		hold(protocol.KindAcquire)
		go func() { busy <- l.UpdateData(bg, nil) }()
		synctest.Wait()
		go func() {
			_, err := s.Acquire(bg, l.Name())
			waiting <- err
		}()
		synctest.Wait()
		if err := s.Close(bg); err != nil {
			t.Fatal(err)
		}
		if err := <-waiting; !errors.Is(err, ErrSessionClosed) {
			t.Fatal(err)
		}
		if err := <-busy; !errors.Is(err, ErrSessionClosed) {
			t.Fatal(err)
		}
		if s.Context().Err() == nil || !errors.Is(context.Cause(l.Context()), ErrSessionClosed) {
			t.Fatal(context.Cause(l.Context()))
		}
	})
}

// TestBadReply: a reply that cannot be read ends the connection, and the request is sent again on the next.
func TestBadReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		bad := 2
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindUpdate && bad > 0 {
					bad--
					fc.sendBytes(protocol.AppendFrameRaw(nil, h.Kind|protocol.KindReply, h.ID, 0, []byte{0x91, 0xc3})) // true for a version
					return true
				}
				return false
			}
		})
		if v, err := s.Update(bg, "x", nil); v != 2 || err != nil {
			t.Fatal(v, err)
		}
		if n := f.count(protocol.KindHello); n != 3 {
			t.Fatal(n)
		}
	})
}

// TestRestoreRetries: a restore is tried until it is answered, with the same epochs' generation, and given up with its context.
func TestRestoreRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		old := f.sessionIn(t, c, 0)
		saved := old.Save()
		bad := 3
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindSessionAttach && bad != 0 {
					bad--
					fc.fail(h, protocol.StatusUnavailable)
					return true
				}
				return false
			}
		})
		s, err := c.Restore(bg, saved)
		if err != nil {
			t.Fatal(err)
		}
		attach := decode[protocol.SessionAttach](t, f.all(protocol.KindSessionAttach)[3].body)
		if attach.Epoch != 1<<32+4 || string(attach.Key) != string(saved.Key) || s.Save().Generation != 1 {
			t.Fatalf("%+v", attach)
		}
		if _, err := s.Update(bg, "x", nil); err != nil {
			t.Fatal(err)
		}
		if m := decode[protocol.Update](t, f.all(protocol.KindUpdate)[0].body); m.Seq != 1<<40+1 || m.Low != m.Seq {
			t.Fatalf("%+v", m)
		}
		f.set(func() { bad = -1 })
		ctx, cancel := brief()
		defer cancel()
		if _, err := c.Restore(ctx, saved); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, Unavailable) {
			t.Fatal(err)
		}
		if _, err := c.Restore(bg, Saved{Node: "/n", Session: 1}); err == nil {
			t.Fatal("a key of no bytes was taken")
		}
	})
}

// TestReleaseCutOff: a release whose session is lost before the answer comes does not say that the units are free; one whose session was closed does.
func TestReleaseCutOff(t *testing.T) {
	for name, closed := range map[string]bool{"nothing vouches any more": false, "closed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				c := f.open(t)
				s := f.sessionIn(t, c, 0, Timeout(10*time.Second))
				l, err := s.Acquire(bg, "x")
				if err != nil {
					t.Fatal(err)
				}
				f.set(func() {
					f.on = func(_ *fakeConn, h protocol.Header) bool {
						return h.Kind == protocol.KindRelease || !closed && (h.Kind == protocol.KindPing || h.Kind == protocol.KindSessionAttach)
					}
				})
				released := make(chan error, 1)
				go func() { released <- l.Release(bg) }()
				synctest.Wait()
				if closed {
					if err := s.Close(bg); err != nil {
						t.Fatal(err)
					}
				}
				err = <-released
				if closed != (err == nil) || !closed && (!errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, ErrSessionExpired)) {
					t.Error(err)
				}
				if l.Held() {
					t.Error("it is still believed to be held")
				}
			})
		})
	}
}
