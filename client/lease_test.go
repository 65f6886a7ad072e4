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

func brief() (context.Context, context.CancelFunc) { return context.WithTimeout(bg, time.Second) }

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
		check("d", "e", "e", "f", "f")
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

// TestTurns: waiting for a turn at a name ends with the context, with the session, and passes the
// turn on.
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

// TestRestoreRetries: a restore is tried under one epoch and one nonce until it is answered, and
// given up with its context. The same client may go on with it; any other restore of the same state
// is another heir's.
func TestRestoreRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		old := f.sessionIn(t, c, 0)
		saved := old.Save()
		bad, lost := 3, false
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindSessionAttach && bad != 0 {
					bad--
					fc.fail(h, protocol.StatusUnavailable)
					return true
				}
				if h.Kind == protocol.KindSessionAttach && lost { // applied, and the answer is lost
					m := decode[protocol.SessionAttach](t, h.Body)
					f.epochs[m.Session], f.nonces[m.Session] = m.Epoch, m.Nonce
					return true
				}
				return false
			}
		})
		s, err := c.Restore(bg, saved)
		if err != nil {
			t.Fatal(err)
		}
		attaches := func(from int) (list []protocol.SessionAttach) {
			for _, r := range f.all(protocol.KindSessionAttach) {
				if m := decode[protocol.SessionAttach](t, r.body); m.Epoch >= 1<<32 { // not the first holder's
					list = append(list, m)
				}
			}
			return list[from:]
		}
		first := attaches(0)
		if len(first) != 4 || first[0].Epoch != 1<<32+1 || string(first[0].Key) != string(saved.Key) || s.Save().Generation != 1 {
			t.Fatalf("%+v", first)
		}
		for _, m := range first {
			if m.Epoch != first[0].Epoch || m.Nonce != first[0].Nonce || m.Nonce == 0 {
				t.Fatalf("%+v", first)
			}
		}
		if _, err := s.Update(bg, "x", nil); err != nil {
			t.Fatal(err)
		}
		if m := decode[protocol.Update](t, f.all(protocol.KindUpdate)[0].body); m.Seq != 1<<40+1 || m.Low != m.Seq {
			t.Fatalf("%+v", m)
		}
		// Behind what was sent more than once an epoch is left out. The nonce stays that of the
		// holder.
		f.drop()
		time.Sleep(time.Second) // of the bubble
		synctest.Wait()
		if m := attaches(4); len(m) != 1 || m[0].Epoch != 1<<32+3 || m[0].Nonce != first[0].Nonce || s.Err() != nil {
			t.Fatalf("%+v, %v", m, s.Err())
		}
		// Another heir of the same state.
		if _, err := c.Restore(bg, saved); !errors.Is(err, BadSession) {
			t.Fatal(err)
		}
		if m := attaches(5); len(m) != 1 || m[0].Epoch != 1<<32+1 || m[0].Nonce == first[0].Nonce {
			t.Fatalf("%+v", m)
		}
		// What the heir saved is good. The restore is given up, and then gone on with.
		saved = s.Save()
		f.set(func() { lost = true })
		ctx, cancel := brief()
		defer cancel()
		if _, err := c.Restore(ctx, saved); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		f.set(func() { lost = false })
		r, err := c.Restore(bg, saved)
		if err != nil {
			t.Fatal(err)
		}
		m := slices.DeleteFunc(attaches(6), func(m protocol.SessionAttach) bool { return m.Epoch < 2<<32 }) // the first heir's, in vain
		if len(m) != 2 || m[0].Epoch != 2<<32+1 || m[1].Epoch != m[0].Epoch || m[1].Nonce != m[0].Nonce ||
			m[0].Nonce == first[0].Nonce || r.Save().Generation != 2 {
			t.Fatalf("%+v", m)
		}
		if _, err := c.Restore(bg, saved); !errors.Is(err, BadSession) {
			t.Fatal(err)
		}
		f.set(func() { bad = -1 })
		ctx, cancel = brief()
		defer cancel()
		if _, err := c.Restore(ctx, saved); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, Unavailable) {
			t.Fatal(err)
		}
		if _, err := c.Restore(bg, Saved{Node: "/n", Session: 1}); err == nil {
			t.Fatal("a key of no bytes was taken")
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

// TestMutexOrder: goroutines of one session get a mutex in the order in which they asked for it,
// whether those before release it, lose it or give up.
func TestMutexOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		m := s.Mutex("m")
		first, err := m.Lock(bg)
		if err != nil {
			t.Fatal(err)
		}
		const goroutines, loses, givesUp = 30, 10, 20
		ctx, giveUp := context.WithCancel(bg)
		defer giveUp()
		var order, want []int
		for i := range goroutines {
			if i != givesUp {
				want = append(want, i)
			}
			go func() {
				until := bg
				if i == givesUp {
					until = ctx
				}
				l, err := m.Lock(until)
				switch {
				case i == givesUp && errors.Is(err, context.Canceled):
					return
				case err != nil:
					t.Error(i, err)
					return
				}
				order = append(order, i)
				if i != loses {
					err = l.Release(bg)
				} else {
					f.set(func() {
						delete(f.holds, "m")
						f.attachedAt[s.id].send(protocol.KindLeaseLost, 0, 1,
							&protocol.LeaseLost{Session: s.id, Name: []byte("m"), OrderID: l.Token()})
					})
				}
				if err != nil {
					t.Error(i, err)
				}
			}()
			synctest.Wait() // it waits behind those before
		}
		giveUp()
		if err := first.Release(bg); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !slices.Equal(order, want) {
			t.Fatal(order)
		}
	})
}

// TestMutexWait: Wait bounds the wait for other goroutines of the session too. What is left of it
// is asked of the server.
func TestMutexWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		m := s.RWMutex("m")
		first, err := m.Lock(bg, Wait(0))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		for _, wait := range []time.Duration{0, time.Second} {
			if l, err := m.Lock(ctx, Wait(wait)); !errors.Is(err, ErrNotAcquired) {
				t.Errorf("locked after %s: %v, %v", wait, l, err)
			}
			if l, err := m.RLock(ctx, Wait(wait)); !errors.Is(err, ErrNotAcquired) {
				t.Errorf("locked for reading after %s: %v, %v", wait, l, err)
			}
		}
		if n := f.count(protocol.KindAcquire); n != 1 {
			t.Errorf("%d acquires of a lock that the session holds", n-1)
		}
		next := make(chan error, 1)
		go func() {
			_, err := m.Lock(ctx, Wait(time.Second))
			next <- err
		}()
		time.Sleep(time.Second / 2) // of the bubble
		if err := first.Release(bg); err != nil {
			t.Fatal(err)
		}
		if err := <-next; err != nil {
			t.Fatal(err)
		}
		sent := f.all(protocol.KindAcquire)
		if m := decode[protocol.Acquire](t, sent[len(sent)-1].body); m.Timeout != 500 {
			t.Errorf("the server may let it wait for %d ms", m.Timeout)
		}
		for _, end := range []error{context.Canceled, ErrSessionClosed} {
			ctx, cancel := context.WithCancel(ctx)
			go func() {
				_, err := m.Lock(ctx, Wait(time.Second))
				next <- err
			}()
			synctest.Wait()
			if end == context.Canceled {
				cancel()
			} else if err := s.Close(bg); err != nil {
				t.Error(err)
			}
			if err := <-next; !errors.Is(err, end) {
				t.Errorf("ended with %v, want %v", err, end)
			}
			cancel()
		}
	})
}
