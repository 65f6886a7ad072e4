package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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
