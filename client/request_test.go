package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

var bg = context.Background()

// TestPipelining: callers share a connection, answers may come in any order, and no more requests
// are unanswered than the hello granted.
func TestPipelining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.window = 8
		c := f.open(t)
		n, err := c.Node(bg, "/n")
		if err != nil {
			t.Fatal(err)
		}
		var held []protocol.Header
		most := 0
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindDescribe {
					held = append(held, h)
					most = max(most, len(held))
					return true
				}
				return false
			}
		})
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				name := fmt.Sprint("pipe", i)
				sem, err := n.Describe(bg, name, ReadConsistency(Strict))
				if err != nil || string(sem.Data) != name {
					t.Error(name, sem, err)
				}
			})
		}
		for range 50 {
			synctest.Wait()
			f.set(func() {
				if len(held) == 0 {
					return
				}
				h := held[len(held)-1] // the newest first
				held = held[:len(held)-1]
				for fc := range f.conns {
					fc.answer(h)
				}
			})
		}
		wg.Wait()
		if most != 8 || len(f.conns) != 1 {
			t.Fatal(most, len(f.conns))
		}
	})
}

// TestWindowAndContext: who gives up waiting for the window hands its turn on, and a call that was
// given up counts until it is answered.
func TestWindowAndContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.window = 1
		c := f.open(t)
		n, err := c.Node(bg, "/n")
		if err != nil {
			t.Fatal(err)
		}
		var held []protocol.Header
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				held = append(held, h)
				return true
			}
		})
		call := func(d time.Duration) error {
			ctx, cancel := context.WithTimeout(bg, d)
			defer cancel()
			_, err := n.Describe(ctx, "x", ReadConsistency(Strict))
			return err
		}
		if err := call(time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if err := call(time.Second); !errors.Is(err, context.DeadlineExceeded) || f.count(protocol.KindDescribe) != 1 {
			t.Fatal(err)
		}
		third := make(chan error, 1)
		go func() { third <- call(time.Minute) }()
		synctest.Wait()
		f.set(func() {
			f.on = nil
			for fc := range f.conns {
				fc.answer(held[0])
			}
		})
		if err := <-third; err != nil {
			t.Fatal(err)
		}
	})
}

// TestRedirect: a shard moves to another instance. Requests follow it there, behind the session's
// ticket, and the ticket of a new attach is shown again.
func TestRedirect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		f.set(func() {
			f.version, f.master[2] = 2, 2
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind >= protocol.KindCreate && h.Kind < protocol.KindPong && fc.instance != f.master[h.Arg+1] {
					fc.fail(h, protocol.StatusWrongShard)
					return true
				}
				return false
			}
		})
		if _, err := s.Update(bg, nameIn(1), nil); err != nil {
			t.Fatal(err)
		}
		updates, tickets := f.all(protocol.KindUpdate), f.all(protocol.KindPresentTicket)
		if last := updates[len(updates)-1]; last.instance != 2 {
			t.Fatal(last.instance)
		}
		if len(tickets) != 1 || tickets[0].instance != 2 ||
			string(decode[protocol.PresentTicket](t, tickets[0].body).Ticket) != "ticket 1" {
			t.Fatal(tickets)
		}

		// The home's connection is lost: a new attach, and its ticket.
		f.set(func() {
			for fc := range f.conns {
				if fc.instance == 1 {
					_ = fc.nc.Close()
					delete(f.conns, fc)
				}
			}
		})
		synctest.Wait()
		if _, err := s.Update(bg, nameIn(1), nil); err != nil {
			t.Fatal(err)
		}
		tickets = f.all(protocol.KindPresentTicket)
		if len(tickets) != 2 || string(decode[protocol.PresentTicket](t, tickets[1].body).Ticket) != "ticket 2" {
			t.Fatal(len(tickets))
		}

		// The instance forgot it: it is shown again.
		forgot := true
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindUpdate && forgot {
					forgot = false
					fc.fail(h, protocol.StatusBadSession)
					return true
				}
				return false
			}
		})
		if _, err := s.Update(bg, nameIn(1), nil); err != nil {
			t.Fatal(err)
		}
		if n := f.count(protocol.KindPresentTicket); n != 3 {
			t.Fatal(n)
		}
	})
}

// TestBadSession: an instance that does not know what is attached on it gets the attach again, for
// all sessions of that home: a pong for one of them must not keep up the belief in the others.
func TestBadSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		a, b, other := f.sessionIn(t, c, 0), f.sessionIn(t, c, 0), f.sessionIn(t, c, 1)
		forgot := true
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindUpdate && forgot {
					forgot = false
					fc.fail(h, protocol.StatusBadSession)
					return true
				}
				return false
			}
		})
		if _, err := a.Update(bg, "x", nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		var again []uint64
		for _, r := range f.all(protocol.KindSessionAttach) {
			again = append(again, decode[protocol.SessionAttach](t, r.body).Session)
		}
		if len(again) != 2 || !slices.Contains(again, a.id) || !slices.Contains(again, b.id) {
			t.Fatal(again, a.id, b.id, other.id)
		}
		// One that goes on saying so is believed in the end.
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindUpdate {
					fc.fail(h, protocol.StatusBadSession)
				}
				return h.Kind == protocol.KindUpdate
			}
		})
		if _, err := a.Update(bg, "x", nil); !errors.Is(err, BadSession) {
			t.Fatal(err)
		}
	})
}

// TestCallsEndWithTheSession: a call that waits for a connection, or for its next try, returns at
// the moment when its session ends.
func TestCallsEndWithTheSession(t *testing.T) {
	name := nameIn(1)
	calls := map[string]func(s *Session) error{
		"acquire":       func(s *Session) error { _, err := s.Acquire(bg, name); return err },
		"create":        func(s *Session) error { return s.Create(bg, name, 1, nil) },
		"release":       func(s *Session) error { _, err := s.Release(bg, name); return err },
		"watch once":    func(s *Session) error { _, _, err := s.WatchOnce(bg, name, OnData); return err },
		"configuration": func(s *Session) error { return s.Config(configIn(1)).Delete(bg) },
	}
	dials := map[string]func(ctx context.Context) error{
		"dial": func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		},
		"pause": func(context.Context) error { return errors.New("connection refused") },
	}
	for what, wait := range dials {
		for call, f := range calls {
			t.Run(what+"/"+call, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testCallEndsWithTheSession(t, wait, f) })
			})
		}
	}
}

func testCallEndsWithTheSession(t *testing.T, wait func(context.Context) error, call func(*Session) error) {
	f := newFake(t)
	f.master[2], f.only = 2, map[uint64]uint64{2: 2}
	var away atomic.Bool
	c := f.open(t, func(cfg *Config) {
		cfg.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			if address == "2" && away.Load() {
				return nil, wait(ctx)
			}
			return f.dial(ctx, address)
		}
	})
	s := f.sessionIn(t, c, 0)
	away.Store(true)
	f.set(func() {
		for fc := range f.conns {
			if fc.instance == 2 {
				_ = fc.nc.Close()
			}
		}
	})
	var returned time.Time
	done := make(chan error, 1)
	go func() {
		err := call(s)
		returned = time.Now()
		done <- err
	}()
	time.Sleep(7*time.Second + time.Millisecond) // in the bubble: it is in the middle of a wait
	synctest.Wait()
	ended := time.Now()
	if err := s.Close(bg); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil && !errors.Is(err, ErrSessionClosed) || !returned.Equal(ended) { // the close has released
		t.Errorf("the call returned %s after its session's end: %v", returned.Sub(ended), err)
	}
}

// configIn is the name of a configuration whose bucket is b.
func configIn(b uint32) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint("config", i); protocol.Bucket(7, []byte(ConfigPrefix+name), 4) == b {
			return name
		}
	}
}

// TestIdleSlots: a session that no task uses is closed after a minute, and one in use is not.
func TestIdleSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		slots := f.open(t).Slots("/n", "jobs")
		l, err := slots.Acquire(bg)
		if err != nil {
			t.Fatal(err)
		}
		s := l.Session()
		for _, x := range []struct {
			after time.Duration
			stops int
		}{{time.Hour, 0}, {maxSlotIdle - time.Millisecond, 0}, {maxSlotIdle - time.Millisecond, 0}, {maxSlotIdle, 1}} {
			time.Sleep(x.after)
			synctest.Wait()
			if n := f.stops(s); n != x.stops {
				t.Fatalf("after another %s: %d stops, want %d", x.after, n, x.stops)
			}
			if x.after == time.Hour { // it is used for as long as that, and then now and again
				err = l.Release(bg)
			} else if x.stops == 0 {
				if l, err = slots.TryAcquire(bg); err == nil && l.Session() == s {
					err = l.Release(bg)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
	})
}
