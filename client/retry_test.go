package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestSameNumberAgain: what was not answered is sent again with the same number, on the connection
// that follows, and Low tells what was answered.
func TestSameNumberAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		lost := 0
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindAcquire && lost < 3 {
					lost++
					_ = fc.nc.Close()
					fc.answer(h) // it has its effect, and nobody hears of it
					delete(f.conns, fc)
					return true
				}
				return false
			}
		})
		l, err := s.Acquire(bg, nameIn(2), Count(1), Data("payload"))
		if err != nil || l.Token() != 1 {
			t.Fatal(l, err)
		}
		for i, r := range f.all(protocol.KindAcquire) {
			m := decode[protocol.Acquire](t, r.body)
			late := i > 3 && m.Low == 2 // one more was under way when the answer came; the server does nothing for it
			if m.Seq != 1 || m.Low != 1 && !late || m.Session != s.id || string(m.Data) != "payload" || m.Timeout != protocol.Forever {
				t.Errorf("sending %d: %+v", i, m)
			}
		}
		if err := l.Release(bg); err != nil {
			t.Fatal(err)
		}
		m := decode[protocol.Release](t, f.all(protocol.KindRelease)[0].body)
		if m.Seq != 2 || m.Low != 2 || m.OrderID != 1 {
			t.Fatalf("%+v", m)
		}
		if n := f.count(protocol.KindAcquire); n < 4 {
			t.Fatalf("sent %d times", n)
		}
	})
}

// TestRetries: what was not applied is asked again until the context ends, which then says why it
// was in vain.
func TestRetries(t *testing.T) {
	for _, status := range []protocol.Status{protocol.StatusUnavailable, protocol.StatusOverloaded, protocol.StatusWrongShard} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			c := f.open(t)
			s := f.sessionIn(t, c, 0)
			bad := 5
			f.set(func() {
				f.on = func(fc *fakeConn, h protocol.Header) bool {
					if h.Kind == protocol.KindUpdate && bad != 0 {
						bad--
						fc.fail(h, status)
						return true
					}
					return false
				}
			})
			if v, err := s.Update(bg, "x", nil); v != 2 || err != nil {
				t.Fatal(v, err)
			}
			f.set(func() { bad = -1 })
			ctx, cancel := context.WithTimeout(bg, time.Minute)
			defer cancel()
			_, err := s.Update(ctx, "x", nil)
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, status) ||
				errors.Is(err, ErrOutcomeUnknown) || !Retryable(err) {
				t.Fatal(err)
			}
			if n := f.count(protocol.KindUpdate); n > 300 {
				t.Fatalf("%d sendings in a minute", n)
			}
		})
	}
}

// TestOutcomeUnknown: only a request that was sent, and not answered, leaves its outcome open.
func TestOutcomeUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool { return h.Kind == protocol.KindCreate }
		})
		ctx, cancel := brief()
		defer cancel()
		if err := s.Create(ctx, "x", 1, nil); !errors.Is(err, ErrOutcomeUnknown) ||
			!errors.Is(err, context.DeadlineExceeded) || Retryable(err) {
			t.Fatal(err)
		}
		// The next request closes the number of the one that was given up, so that it is refused if
		// it is still on its way.
		if _, err := s.Update(bg, "x", nil); err != nil {
			t.Fatal(err)
		}
		if m := decode[protocol.Update](t, f.all(protocol.KindUpdate)[0].body); m.Seq != 2 || m.Low != 2 {
			t.Fatalf("%+v", m)
		}
		f.set(func() { f.refuse = true })
		f.drop()
		synctest.Wait()
		ctx, cancel = brief()
		defer cancel()
		if err := s.Create(ctx, "x", 1, nil); errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		// With the session, waiting ends.
		if err := s.Create(bg, "x", 1, nil); !errors.Is(err, ErrSessionExpired) || errors.Is(err, ErrOutcomeUnknown) {
			t.Fatal(err)
		}
	})
}

// TestAnnouncedDuringTry: the buckets of a shard are served from a moment on that lies between a
// try and its refusal. The next try does not wait. An instance that announces and refuses again and
// again is not asked again and again at once.
func TestAnnouncedDuringTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		var tries []time.Time
		refusals := 2
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind != protocol.KindUpdate {
					return false
				}
				if tries = append(tries, time.Now()); len(tries) > refusals {
					return false
				}
				fc.send(protocol.KindMapChanged, 0, 0, &protocol.MapChanged{Version: 1, Shard: 2, Master: 1, Term: 1})
				fc.send(h.Kind|protocol.KindReply, h.ID, uint64(protocol.StatusWrongShard), &protocol.Failure{Master: 1, Term: 1})
				return true
			}
		})
		if _, err := s.Update(bg, nameIn(1), nil); err != nil {
			t.Fatal(err)
		}
		if len(tries) != 3 || !tries[2].Equal(tries[1]) {
			t.Errorf("tries at %v", tries)
		}
		f.set(func() { tries, refusals = nil, 12 })
		if _, err := s.Update(bg, nameIn(1), nil); err != nil {
			t.Fatal(err)
		}
		for i := range len(tries) - 3 {
			if tries[i+3].Equal(tries[i]) {
				t.Errorf("four tries at one moment: %v", tries)
			}
		}
	})
}
