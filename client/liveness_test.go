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

// since waits until ch is closed and says how long that took. In a bubble the time is exact.
func since(begin time.Time, ch <-chan struct{}) time.Duration {
	<-ch
	return time.Since(begin)
}

// TestLeaseEndsInTime: nothing renews it any more, while the connection works: the lease ends 0.85
// of the timeout after the sending of the last ping that was answered, by whatever the server goes
// on saying.
func TestLeaseEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		var states []State
		var stopped error
		s := f.sessionIn(t, c, 0, Timeout(10*time.Second), OnState(func(s State) { states = append(states, s) }),
			OnStopped(func(err error) { stopped = err }))
		l, err := s.Acquire(context.Background(), nameIn(1))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		states = nil            // of sessions with other homes
		time.Sleep(time.Minute) // keep-alives do their work
		synctest.Wait()
		if !l.Held() || l.Lost() != nil || s.State() != Attached || s.Remaining() < 5*time.Second {
			t.Fatal(l.Held(), l.Lost(), s.State(), s.Remaining())
		}
		pings := f.count(protocol.KindPing)
		if pings < 23 || pings > 26 {
			t.Fatalf("%d pings in a minute, one each 2.5 s", pings)
		}

		all := f.all(protocol.KindPing)
		lastPing := all[len(all)-1].id
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				switch h.Kind {
				case protocol.KindPing:
					fc.send(protocol.KindPong, h.ID, 0, nil)
					fc.send(protocol.KindPong, h.ID, 2, nil) // another home's
					fc.send(protocol.KindPong, h.ID+100, 1, nil)
					fc.send(protocol.KindPong, lastPing, 1, nil) // old news, again and again
					return true
				case protocol.KindSessionAttach:
					return true // never answered
				}
				return false
			}
		})
		begin := time.Now()
		remaining := s.Remaining()
		lastRenewal := begin.Add(remaining - 8500*time.Millisecond)
		took := since(begin, l.Context().Done())
		if end := begin.Add(took).Sub(lastRenewal); end != 8500*time.Millisecond {
			t.Fatalf("the lease ended %s after the last ping that was answered", end)
		}
		if !errors.Is(context.Cause(l.Context()), ErrSessionExpired) || l.Held() || s.Held() || s.State() != Expired {
			t.Fatal(context.Cause(l.Context()), l.Held(), s.Held(), s.State())
		}
		synctest.Wait()
		if f.count(protocol.KindSessionAttach) == 0 {
			t.Error("a session that is not renewed was not attached again")
		}
		if f.stops(s) == 0 {
			t.Error("an expired session was not stopped")
		}
		if len(states) != 1 || states[0] != Expired || !errors.Is(stopped, ErrSessionExpired) {
			t.Error(states, stopped)
		}
	})
}

// TestRenewalCountsFromSending: an answer that takes long renews the session from the moment its
// ping was sent.
func TestRenewalCountsFromSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0, Timeout(10*time.Second))
		begin := time.Now()
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindPing {
					time.AfterFunc(2*time.Second, func() {
						fc.send(protocol.KindPong, h.ID, 0, nil)
						fc.send(protocol.KindPong, h.ID, 1, nil)
					})
					return true
				}
				return h.Kind == protocol.KindSessionAttach
			}
		})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if s.State() != Attached {
			t.Fatal("slow answers are answers:", s.Err())
		}
		// Pings go out each 2.5 s, so that the last answered one is at least 2 s old.
		if r := s.Remaining(); r > 6500*time.Millisecond {
			t.Fatalf("%s remain %s after the start", r, time.Since(begin))
		}
	})
}

// TestNewRenewalAfterReattach: a home that lost sight of the session is asked again, with a higher
// epoch, and the session goes on.
func TestNewRenewalAfterReattach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		l, err := s.Acquire(context.Background(), nameIn(0))
		if err != nil {
			t.Fatal(err)
		}
		lost := true
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				switch h.Kind {
				case protocol.KindPing:
					if lost {
						fc.send(protocol.KindPong, h.ID, 0, nil)
					}
					return lost
				case protocol.KindSessionAttach:
					lost = false
				}
				return false
			}
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if !l.Held() || s.State() != Attached {
			t.Fatal(l.Lost(), s.State())
		}
		attaches := f.all(protocol.KindSessionAttach)
		if len(attaches) != 1 || decode[protocol.SessionAttach](t, attaches[0].body).Epoch != 2 {
			t.Fatal(len(attaches))
		}
	})
}

// TestSleep: a machine that slept holds nothing, at the first look and without a timer.
func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		ck := &handClock{}
		c := f.open(t, func(cfg *Config) { cfg.clock = ck })
		s := f.sessionIn(t, c, 0)
		l, err := s.Acquire(context.Background(), nameIn(0))
		if err != nil {
			t.Fatal(err)
		}
		// The first look notices the leap and asks the server: no answer may renew the session
		// before the second.
		f.set(func() { f.on = func(fc *fakeConn, h protocol.Header) bool { return true } })
		synctest.Wait()
		ck.add(8499*time.Millisecond, 0)
		if !l.Held() {
			t.Fatal("not held a moment before the deadline")
		}
		ck.add(time.Millisecond, 0)
		if l.Held() || s.Held() || s.State() != Expired || l.Lost() == nil {
			t.Fatal("held after the deadline")
		}
	})
}

// TestSleepIsNoticed: the context of a lease ends soon after waking up, although timers still have
// the time to go that the machine slept.
func TestSleepIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		ck := &handClock{}
		c := f.open(t, func(cfg *Config) { cfg.clock = ck })
		s := f.sessionIn(t, c, 0)
		l, err := s.Acquire(context.Background(), nameIn(0))
		if err != nil {
			t.Fatal(err)
		}
		done := l.Context().Done()
		f.set(func() { f.on = func(fc *fakeConn, h protocol.Header) bool { return true } })
		ck.add(time.Hour, 0)
		if took := since(time.Now(), done); took > 500*time.Millisecond {
			t.Fatalf("noticed after %s", took)
		}
	})
}

// TestWallJump: when the wall's clock runs ahead of the other, nothing is relied on until the
// server renews it again; if it does not, the session is over.
func TestWallJump(t *testing.T) {
	for _, answered := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			ck := &handClock{}
			c := f.open(t, func(cfg *Config) { cfg.clock = ck })
			s := f.sessionIn(t, c, 0)
			l, err := s.Acquire(context.Background(), nameIn(0))
			if err != nil {
				t.Fatal(err)
			}
			done := l.Context().Done()
			seen := make(chan struct{}) // until the test has seen that nothing is relied on, no answer comes
			f.set(func() {
				f.on = func(fc *fakeConn, h protocol.Header) bool {
					<-seen
					return !answered
				}
			})
			time.Sleep(time.Millisecond)
			ck.add(0, 4*time.Second)
			if !l.Held() {
				t.Fatal("less than half of the timeout is no reason")
			}
			ck.add(0, time.Hour)
			if l.Held() {
				t.Fatal("held, for all that is known")
			}
			close(seen)
			begin := time.Now()
			if answered {
				synctest.Wait()
				if !l.Held() || l.Lost() != nil {
					t.Fatal("renewed, and not held")
				}
			} else if took := since(begin, done); took != time.Second {
				t.Fatalf("ended after %s", took)
			}
			// Back is no hint of anything.
			if answered {
				ck.add(0, -2*time.Hour)
				if !l.Held() {
					t.Fatal("not held")
				}
			}
		})
	}
}

// TestClientInBubble: a client that ran in a bubble of package synctest leaves nothing to the
// clients outside, which must not touch a timer of the bubble.
func TestClientInBubble(t *testing.T) {
	use := func(t *testing.T) {
		c := newClient(Config{clock: systemClock{}})
		s := &Session{id: 1, requestedTimeout: time.Minute}
		if _, err := c.register(s); err != nil {
			t.Fatal(err)
		}
		c.sessionTable.forget(s)
	}
	synctest.Test(t, use)
	use(t)
}

// TestNoWayBack: the deadline passes while the link is away; the session is over although the
// server would have it back.
func TestNoWayBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		f.set(func() { f.refuse = true })
		f.drop()
		begin := time.Now()
		synctest.Wait()
		if s.State() != Detached || !s.Held() {
			t.Fatal(s.State())
		}
		if took := since(begin, s.Done()); took > 8500*time.Millisecond {
			t.Fatal(took)
		}
		f.set(func() { f.refuse = false })
		time.Sleep(time.Minute)
		synctest.Wait()
		if s.State() != Expired || f.stops(s) != 1 {
			t.Fatal(s.State(), f.stops(s))
		}
	})
}

// TestTicketIsTakenBack: an instance that is not a session's home, and was shown its ticket, is
// told when the session is over. One that was not is not.
func TestTicketIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.master[2] = 2
		c := f.open(t)
		s, other := f.sessionIn(t, c, 0), f.sessionIn(t, c, 0)
		if _, err := s.Acquire(bg, nameIn(1)); err != nil {
			t.Fatal(err)
		}
		for _, s := range []*Session{s, other} {
			if err := s.Close(bg); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		stopped := map[uint64][]uint64{}
		for _, r := range f.all(protocol.KindSessionStop) {
			id := decode[protocol.SessionStop](t, r.body).Session
			stopped[id] = append(stopped[id], r.instance)
		}
		if !slices.Equal(stopped[s.id], []uint64{1, 2}) || !slices.Equal(stopped[other.id], []uint64{1}) {
			t.Errorf("stopped at instances %v and %v", stopped[s.id], stopped[other.id])
		}
	})
}

// TestShortSessionLeavesNothing: once a session of a short timeout is over, the connection is
// pinged for those that are left, as before it.
func TestShortSessionLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		f.sessionIn(t, c, 0, Timeout(time.Minute))
		minute := func() int {
			before := f.count(protocol.KindPing)
			time.Sleep(time.Minute)
			synctest.Wait()
			return f.count(protocol.KindPing) - before
		}
		long := minute()
		short := f.sessionIn(t, c, 0, Timeout(2*time.Second))
		both := minute()
		if err := short.Close(bg); err != nil {
			t.Fatal(err)
		}
		if after := minute(); after > long+1 || both < 10*long {
			t.Errorf("pings a minute: %d, beside the short session %d, after it %d", long, both, after)
		}
		if d := c.sessionTable.shortestTimeout(); d < 30*time.Second {
			t.Errorf("the shortest timeout is %v", d)
		}
	})
}

// TestOutageUsesFewEpochs: a session that cannot be attached for long has not used up the few
// epochs that a gateway gives each holder. Those of its successor would be among them, and its late
// stop would end the session of that one.
func TestOutageUsesFewEpochs(t *testing.T) {
	for name, test := range map[string]struct {
		lasts  time.Duration
		most   uint64 // epochs, with that of the start
		outage func(f *fake)
	}{
		"nobody is there": {time.Hour, 2, func(f *fake) { f.refuse = true }},
		"attaches are refused": {time.Hour, 2, func(f *fake) {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindSessionAttach {
					fc.fail(h, protocol.StatusUnavailable)
				}
				return h.Kind == protocol.KindSessionAttach
			}
		}},
		"attaches are not answered": {3 * time.Minute, 8, func(f *fake) {
			f.on = func(_ *fakeConn, h protocol.Header) bool { return h.Kind == protocol.KindSessionAttach }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				c := f.open(t)
				s := f.sessionIn(t, c, 0, Timeout(10*time.Second))
				f.set(func() { test.outage(f) })
				f.drop()
				time.Sleep(test.lasts)
				synctest.Wait()
				if s.State() != Expired || f.stops(s) != 0 {
					t.Fatal(s.State(), f.stops(s))
				}
				s.mu.Lock()
				used := s.epoch
				s.mu.Unlock()
				if used > test.most {
					t.Errorf("%d epochs are used", used)
				}
				f.set(func() { f.refuse, f.on = false, nil })
				time.Sleep(time.Minute)
				synctest.Wait()
				if f.stops(s) != 1 {
					t.Errorf("stopped %d times", f.stops(s))
				}
			})
		})
	}
}

// TestTakenOver: being told of one's own new connection is not being taken over.
func TestTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		notify := func(epoch uint64) {
			f.set(func() {
				f.attachedAt[s.id].send(protocol.KindTakenOver, 0, 1, &protocol.TakenOver{Session: s.id, Epoch: epoch})
			})
			synctest.Wait()
		}
		// Nor is the echo of an own start, which was sent twice: but the session is not on this
		// connection any more.
		notify(1)
		if s.State() != Attached || s.attachment.epoch != 2 {
			t.Fatal(s.Err(), s.attachment)
		}
		notify(1)
		if s.State() != Attached || s.attachment.epoch != 2 {
			t.Fatal(s.Err(), s.attachment)
		}
		notify(3)
		if s.State() != Expired || !errors.Is(s.Err(), ErrTakenOver) || !errors.Is(s.Err(), ErrSessionExpired) ||
			!errors.Is(s.Err(), protocol.StatusSessionExpired) {
			t.Fatal(s.Err())
		}
		if f.stops(s) != 0 {
			t.Fatal("who was taken over must not stop the session")
		}
	})
}

// TestCloseIsSentUntilAnswered: the stop outlives the context of the Close.
func TestCloseIsSentUntilAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		stops := 0
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindSessionStop {
					stops++
					switch stops {
					case 1:
						fc.fail(h, protocol.StatusUnavailable)
						return true
					case 2:
						_ = fc.nc.Close()
						return true
					}
				}
				return false
			}
		})
		ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
		defer cancel()
		<-ctx.Done()
		if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if err := s.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if stops != 3 {
			t.Fatal(stops)
		}
	})
}

// TestShortTimeout: with a long grace period, the shortest timeout is enlarged.
func TestShortTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0, Timeout(100*time.Millisecond), KeepAlive(50*time.Millisecond))
		if s.Timeout() != 417*time.Millisecond {
			t.Fatal(s.Timeout())
		}
		for _, o := range []SessionOption{Timeout(0), Timeout(-time.Second), Timeout(31 * time.Minute), KeepAlive(-1)} {
			if _, err := c.Session(context.Background(), "/n", o); err == nil {
				t.Error("an option out of range was accepted")
			}
		}
	})
}

// TestLateStop: an instance that a session was presented to says that the session was
// stopped, after its home has said so. The client keeps nothing of a session that it forgot.
func TestLateStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.master[2] = 2
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		if _, err := s.Acquire(context.Background(), nameIn(1)); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		f.set(func() {
			for fc := range f.conns {
				fc.send(protocol.KindSessionEnded, 0, 1, &protocol.SessionEnded{Session: s.id, Reason: protocol.EndStopped})
			}
		})
		synctest.Wait()
		conns := c.allConns()
		if len(conns) != 2 {
			t.Fatal(len(conns))
		}
		for _, cn := range conns {
			if n := len(cn.detachedUpTo); n > 0 {
				t.Errorf("instance %d: %d sessions are remembered", cn.instance, n)
			}
		}
	})
}
