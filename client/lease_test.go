package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// withLease runs a test on a fresh lease; hold makes the fake keep back the answers of a kind,
// until it is called with 0.
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
					// The fake's acquires are new ones; a change of what is held keeps the order
					// id.
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

// brief ends before a request without an answer is sent again by itself, which would be in the same
// instant of a bubble as the end of a context of minSilence: either could come first.
func brief() (context.Context, context.CancelFunc) { return context.WithTimeout(bg, minSilence/4) }

// TestChangeInTheBackground: a change whose context ends goes on, and a release and an acquire come
// behind it.
func TestChangeInTheBackground(t *testing.T) {
	withLease(t, func(t *testing.T, f *fake, s *Session, l *Lease, hold func(protocol.Kind)) {
		hold(protocol.KindAcquire)
		ctx, cancel := brief()
		defer cancel()
		if err := l.Reduce(ctx, 2); !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
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

// TestReleaseBehindAChange: a change that was sent is completed before the lease is released, so
// that no late copy of it, which is an acquire, comes behind the release.
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
			t.Fatalf("%d releases before the change is complete", n)
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
		if order[n-1] != protocol.KindAcquire || order[n-2] != protocol.KindRelease ||
			order[n-3] != protocol.KindAcquire || slices.Contains(order[:n-2], protocol.KindRelease) {
			t.Errorf("%v", order)
		}
	})
}

// TestChangeOfALostLease: the server has nothing of ours to change. What it granted instead is
// given back.
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
		if err := l.Reduce(bg, 1); !errors.Is(err, ErrLeaseLost) || !strings.HasPrefix(err.Error(), "reduce ") {
			t.Fatal(err)
		}
		if _, err := s.Acquire(bg, l.Name()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestChangeRefusedLater: a change that was sent, and is refused when it is sent again, leaves open
// how many units are held. The lease is not relied on any more, and given back, unless the refusal
// says that nothing was changed.
func TestChangeRefusedLater(t *testing.T) {
	for status, loses := range map[protocol.Status]bool{
		protocol.StatusForbidden: true, protocol.StatusUnauthenticated: true, protocol.StatusInternal: true,
		protocol.StatusBadRequest: false,
	} {
		t.Run(status.String(), func(t *testing.T) {
			withLease(t, func(t *testing.T, f *fake, s *Session, l *Lease, hold func(protocol.Kind)) {
				sent := 0
				f.set(func() {
					f.on = func(fc *fakeConn, h protocol.Header) bool {
						if h.Kind != protocol.KindAcquire {
							return false
						}
						sent++
						switch sent {
						case 1:
							_ = fc.nc.Close()
						case 2:
							fc.fail(h, status)
						default:
							return false
						}
						return true
					}
				})
				if err := l.Reduce(bg, 1); !errors.Is(err, status) || errors.Is(err, ErrOutcomeUnknown) != loses {
					t.Error(err)
				}
				synctest.Wait()
				if n := f.count(protocol.KindRelease); n > 0 {
					t.Error("it is released before its work can stop")
				}
				time.Sleep(time.Minute) // of the bubble
				if loses == l.Held() || loses != errors.Is(l.Lost(), ErrLeaseLost) || s.Err() != nil {
					t.Errorf("the lease was lost by %v, and the session by %v", l.Lost(), s.Err())
				}
				if !loses {
					return
				}
				if r := f.all(protocol.KindRelease); len(r) != 1 || decode[protocol.Release](t, r[0].body).OrderID != 0 {
					t.Errorf("released %d times", len(r))
				}
				if again, err := s.Acquire(bg, l.Name()); err != nil || again.Token() <= l.Token() {
					t.Errorf("acquired again: %v, %v", again, err)
				}
			})
		})
	}
}

// TestDataIsCopied: what the caller does with its data later is not sent, neither when a request is
// sent again nor with a later change.
func TestDataIsCopied(t *testing.T) {
	withLease(t, func(t *testing.T, f *fake, s *Session, l *Lease, hold func(protocol.Kind)) {
		check := func(want ...string) {
			t.Helper()
			var got []string
			for _, r := range f.all(protocol.KindAcquire) {
				got = append(got, string(decode[protocol.Acquire](t, r.body).Data))
			}
			if !slices.Equal(got, want) {
				t.Errorf("sent %q, want %q", got, want)
			}
		}
		hold(protocol.KindAcquire)
		data := []byte("e")
		ctx, cancel := brief()
		defer cancel()
		if err := l.UpdateData(ctx, data); !errors.Is(err, ErrOutcomeUnknown) {
			t.Fatal(err)
		}
		data[0] = 'x'
		synctest.Wait() // it is sent again in the background, and once more on the next connection
		f.drop()
		synctest.Wait()
		hold(0)
		synctest.Wait()
		if err := l.Release(bg); err != nil {
			t.Fatal(err)
		}
		f.set(func() { f.on = nil })
		data[0] = 'f'
		l, err := s.Acquire(bg, l.Name(), Count(3), Data(data))
		if err != nil {
			t.Fatal(err)
		}
		data[0] = 'x'
		hold(0)
		if err := l.Reduce(bg, 2); err != nil {
			t.Fatal(err)
		}
		check("d", "e", "e", "e", "f", "f")
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

// TestBadReply: a reply that cannot be read ends the connection, and the request is sent again on
// the next.
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

// TestReleaseCutOff: a release whose session is lost before the answer comes does not say that the
// units are free; one whose session was closed does, once the server has heard of that.
func TestReleaseCutOff(t *testing.T) {
	for name, test := range map[string]struct {
		closes bool
		lost   []protocol.Kind
		want   error // nil: the units are free
	}{
		"nothing renews it any more": {false, []protocol.Kind{protocol.KindPing, protocol.KindSessionAttach}, ErrSessionExpired},
		"closed":                     {true, nil, nil},
		"closed, which nobody hears": {true, []protocol.Kind{protocol.KindSessionStop}, ErrUnreachable},
	} {
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
						return h.Kind == protocol.KindRelease || slices.Contains(test.lost, h.Kind)
					}
				})
				released := make(chan error, 1)
				go func() { released <- l.Release(bg) }()
				synctest.Wait()
				if test.closes {
					if err := s.Close(bg); !errors.Is(err, test.want) {
						t.Fatal(err)
					}
				}
				err = <-released
				if !errors.Is(err, test.want) || (test.want != nil) != errors.Is(err, ErrOutcomeUnknown) {
					t.Error(err)
				}
				if l.Held() {
					t.Error("it is still believed to be held")
				}
			})
		})
	}
}
