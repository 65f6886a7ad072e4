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

// tickingClock goes on by a microsecond with each look: no two events have the same time.
type tickingClock struct{ handClock }

func (c *tickingClock) now() time.Duration {
	c.add(time.Microsecond, 0)
	return c.handClock.now()
}

// TestOnePingAfterJump: after a jump one ping renews all sessions of a connection. A server pauses
// a connection that sends hundreds of them, and sessions of a short timeout would end.
func TestOnePingAfterJump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		ck := &tickingClock{}
		c := f.open(t, func(cfg *Config) { cfg.clock = ck })
		var sessions []*Session
		for range 300 {
			s, err := c.Session(bg, "/n", Timeout(time.Second))
			if err != nil {
				t.Fatal(err)
			}
			sessions = append(sessions, s)
		}
		before := f.count(protocol.KindPing)
		f.set(func() {
			pings := 0
			f.on = func(_ *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindPing {
					pings++
				}
				return pings > 256
			}
		})
		ck.add(0, time.Hour)
		c.checkClocks()
		synctest.Wait()
		for _, s := range sessions {
			if !s.Held() {
				t.Error("not renewed:", s.State())
			}
		}
		if n := f.count(protocol.KindPing) - before; n != 1 {
			t.Errorf("%d pings after one jump", n)
		}
		ck.add(0, time.Hour)
		c.checkClocks()
		time.Sleep(pingGap)
		synctest.Wait()
		if n := f.count(protocol.KindPing) - before; n != 2 {
			t.Errorf("%d pings after two jumps", n)
		}
	})
}

// TestPingAfterAttach: a ping that was sent after a jump, and before a session was attached on the
// connection, does not spare that session its own.
func TestPingAfterAttach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		ck := &handClock{}
		c := f.open(t, func(cfg *Config) { cfg.clock = ck })
		first := f.sessionIn(t, c, 0)
		second := f.sessionIn(t, c, 1)
		var answer func() // the attach that waits
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindSessionAttach {
					answer = func() { fc.answer(h) }
				}
				return h.Kind == protocol.KindSessionAttach
			}
		})
		second.mu.Lock()
		att := second.attachment
		second.mu.Unlock()
		second.connLost(att.cn)
		synctest.Wait()
		time.Sleep(time.Millisecond)
		ck.add(0, time.Hour)
		c.checkClocks()
		synctest.Wait()
		if !first.Held() || second.Held() {
			t.Fatal(first.Held(), second.Held())
		}
		before := f.count(protocol.KindPing)
		f.set(answer)
		time.Sleep(pingGap)
		synctest.Wait()
		if n := f.count(protocol.KindPing) - before; n != 1 || !second.Held() {
			t.Errorf("%d pings after the attach, held: %v", n, second.Held())
		}
	})
}
