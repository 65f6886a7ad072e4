package client

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// stallingClock holds up a goroutine that asks for the time while it works on one of the sessions.
type stallingClock struct {
	handClock
	sessions atomic.Pointer[[]*Session] // nil: it holds up nobody
	stalled  chan *Session
	goOn     chan struct{}
}

func (c *stallingClock) now() time.Duration {
	now, list := c.handClock.now(), c.sessions.Load()
	if list == nil {
		return now
	}
	for _, s := range *list {
		if s.mu.TryLock() {
			s.mu.Unlock()
		} else if c.sessions.CompareAndSwap(list, nil) {
			c.stalled <- s
			<-c.goOn
		}
	}
	return now
}

// TestJumpIsSeenAtOnce: while one goroutine has yet to tell sessions of a jump of the clock, no
// other one finds them held.
func TestJumpIsSeenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		ck := &stallingClock{stalled: make(chan *Session), goOn: make(chan struct{})}
		c := f.open(t, func(cfg *Config) { cfg.clock = ck })
		both := []*Session{f.sessionIn(t, c, 0), f.sessionIn(t, c, 1)}
		time.Sleep(time.Millisecond)
		ck.sessions.Store(&both)
		ck.add(0, time.Hour)
		go c.checkClocks()
		other := both[0]
		if <-ck.stalled == other {
			other = both[1]
		}
		if other.Held() {
			t.Error("held, although another goroutine has seen the clock jump")
		}
		close(ck.goOn)
		synctest.Wait()
		for _, s := range both {
			if !s.Held() {
				t.Error("not held after it was renewed")
			}
		}
	})
}

// TestJumpDuringStart: a session that was started before the clock jumped, and knew of it only
// afterwards, is not relied on before it is renewed.
func TestJumpDuringStart(t *testing.T) {
	t.Run("beside another one", func(t *testing.T) { testJumpDuringStart(t, true) })
	t.Run("alone", func(t *testing.T) { testJumpDuringStart(t, false) })
}

func testJumpDuringStart(t *testing.T, another bool) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		ck := &handClock{}
		c := f.open(t, func(cfg *Config) { cfg.clock = ck })
		var first *Session
		if another {
			first = f.sessionIn(t, c, 0)
		}
		var answer func() // the start that waits
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindSessionStart {
					answer = func() { fc.answer(h) }
				}
				return h.Kind == protocol.KindSessionStart || h.Kind == protocol.KindPing
			}
		})
		started := make(chan *Session, 1)
		go func() {
			s, err := c.Session(context.Background(), "/n")
			if err != nil {
				t.Error(err)
			}
			started <- s
		}()
		synctest.Wait()
		time.Sleep(time.Millisecond)
		ck.add(0, time.Hour)
		if another && first.Held() {
			t.Error("held after the clock jumped")
		}
		f.set(answer)
		if s := <-started; s != nil && (s.Held() || s.State() != Attached) {
			t.Errorf("held: %v, state %v", s.Held(), s.State())
		}
		f.set(func() { f.on = nil })
	})
}
