package client

import (
	"context"
	"errors"
	"fmt"
	"net"
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
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, status) || errors.Is(err, ErrOutcomeUnknown) || !Retryable(err) {
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
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if err := s.Create(ctx, "x", 1, nil); !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) || Retryable(err) {
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
		ctx, cancel = context.WithTimeout(bg, time.Second)
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
		if len(tickets) != 1 || tickets[0].instance != 2 || string(decode[protocol.PresentTicket](t, tickets[0].body).Ticket) != "ticket 1" {
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

// TestAbandonedAcquire: an acquire that is given up before it was answered is taken back with a
// later number, and the name is free for the next only then.
func TestAbandonedAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		name := nameIn(3)
		first := true
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindAcquire && first {
					first = false
					return true
				}
				return false
			}
		})
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if _, err := s.Acquire(ctx, name); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrOutcomeUnknown) {
			t.Fatal(err)
		}
		l, err := s.Acquire(bg, name)
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		for _, r := range f.log {
			switch r.kind {
			case protocol.KindAcquire:
				m := decode[protocol.Acquire](t, r.body)
				order = append(order, fmt.Sprintf("acquire %d/%d", m.Seq, m.Low))
			case protocol.KindRelease:
				m := decode[protocol.Release](t, r.body)
				order = append(order, fmt.Sprintf("release %d/%d of %d", m.Seq, m.Low, m.OrderID))
			}
		}
		if want := []string{"acquire 1/1", "release 2/2 of 0", "acquire 3/3"}; !slices.Equal(order, want) {
			t.Fatal(order)
		}
		if !l.Held() {
			t.Fatal(l.Lost())
		}
	})
}

// TestLateRelease: a release whose context ended holds the name until it was answered, so that it
// cannot free what is acquired after it.
func TestLateRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		name := nameIn(3)
		l, err := s.Acquire(bg, name)
		if err != nil {
			t.Fatal(err)
		}
		var late *protocol.Header
		var at *fakeConn
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindRelease {
					late, at = &h, fc
				}
				return h.Kind == protocol.KindRelease
			}
		})
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if err := l.Release(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if l.Held() || l.Context().Err() == nil {
			t.Fatal("held after its release began")
		}
		next := make(chan *Lease, 1)
		go func() {
			l, err := s.Acquire(bg, name)
			if err != nil {
				t.Error(err)
			}
			next <- l
		}()
		time.Sleep(time.Minute)
		select {
		case <-next:
			t.Fatal("acquired before the release was answered")
		default:
		}
		f.set(func() { at.answer(*late) })
		if l := <-next; !l.Held() || l.Token() != 2 {
			t.Fatal(l)
		}
	})
}

// TestWaitingOverReconnects: an accepted acquire is asked for again under its number when its
// result may have been missed.
func TestWaitingOverReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		accepted := 0
		result := protocol.Accepted
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind != protocol.KindAcquire {
					return false
				}
				m := decode[protocol.Acquire](t, h.Body)
				accepted++
				if accepted > 1 && (m.Seq != 1 || m.Low != 2) {
					t.Errorf("asked again as %d, with low %d", m.Seq, m.Low)
				}
				fc.reply(h, &protocol.AcquireReply{State: result, OrderID: 9})
				return true
			}
		})
		notified := 0
		got := make(chan *Lease, 1)
		go func() {
			l, err := s.Acquire(bg, nameIn(1), OnAccepted(func(id uint64) { notified++ }))
			if err != nil {
				t.Error(err)
			}
			got <- l
		}()
		for range 3 {
			synctest.Wait()
			f.drop()
			time.Sleep(time.Second)
		}
		synctest.Wait()
		f.set(func() { result = protocol.Acquired })
		f.drop()
		l := <-got
		if l.Token() != 9 || notified != 1 || accepted < 4 {
			t.Fatal(l.Token(), notified, accepted)
		}

		// The result comes as an event, even before the acquirer was told that it was accepted.
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind != protocol.KindAcquire {
					return false
				}
				m := decode[protocol.Acquire](t, h.Body)
				fc.reply(h, &protocol.AcquireReply{State: protocol.Accepted, OrderID: 10})
				fc.send(protocol.KindAcquireResult, 0, 2, &protocol.AcquireResult{Session: s.id, Seq: m.Seq + 7, State: protocol.NotAcquired})
				for range 2 {
					fc.send(protocol.KindAcquireResult, 0, 2, &protocol.AcquireResult{Session: s.id, Seq: m.Seq, State: protocol.Acquired, OrderID: 10})
				}
				return true
			}
		})
		if l, err := s.Acquire(bg, nameIn(2)); err != nil || l.Token() != 10 {
			t.Fatal(l, err)
		}
	})
}

// TestConfirm: after a lost link, leases are asked about under their numbers, and one that is not
// there any more is lost.
func TestConfirm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		kept, err := s.Acquire(bg, nameIn(1))
		if err != nil {
			t.Fatal(err)
		}
		lost, err := s.Acquire(bg, nameIn(2))
		if err != nil {
			t.Fatal(err)
		}
		f.set(func() { delete(f.holds, nameIn(2)) })
		f.drop()
		<-lost.Context().Done()
		time.Sleep(time.Second)
		synctest.Wait()
		if !errors.Is(lost.Lost(), ErrLeaseLost) || !kept.Held() {
			t.Fatal(lost.Lost(), kept.Lost())
		}
		for _, r := range f.all(protocol.KindAcquire)[2:] {
			if m := decode[protocol.Acquire](t, r.body); m.Seq > 2 || m.Low != 3 || m.Timeout != 0 {
				t.Errorf("confirmed with %+v", m)
			}
		}
		if _, err := s.Acquire(bg, nameIn(2)); err != nil {
			t.Fatal(err)
		}
	})
}

// TestLostRightAfterGrant: a lease that is taken away before its acquirer has run is not handed
// out.
func TestLostRightAfterGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		name := nameIn(1)
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindAcquire {
					out := protocol.AppendFrame(nil, h.Kind|protocol.KindReply, h.ID, 0, &protocol.AcquireReply{State: protocol.Acquired, OrderID: 5})
					out = protocol.AppendFrame(out, protocol.KindLeaseLost, 0, 2, &protocol.LeaseLost{Session: s.id, Name: []byte(name), OrderID: 5})
					fc.sendBytes(out)
				}
				return h.Kind == protocol.KindAcquire
			}
		})
		l, err := s.Acquire(bg, name)
		if err == nil {
			<-l.Context().Done()
			err = l.Lost()
		}
		if !errors.Is(err, ErrLeaseLost) && !errors.Is(err, Aborted) {
			t.Fatal(err)
		}
	})
}

// TestHelloRefused: what trying again does not change is said at once; the rest is tried until the
// context ends.
func TestHelloRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		for _, x := range []struct {
			reply func(fc *fakeConn, h protocol.Header)
			want  error
			took  time.Duration
		}{
			{func(fc *fakeConn, h protocol.Header) { fc.fail(h, protocol.StatusUnauthenticated) }, Unauthenticated, 0},
			{func(fc *fakeConn, h protocol.Header) {
				fc.send(protocol.KindGoodbye, 0, 0, &protocol.Goodbye{Status: protocol.StatusUnsupported})
			}, protocol.StatusUnsupported, 0},
			{func(fc *fakeConn, h protocol.Header) {
				fc.reply(h, &protocol.HelloReply{Version: 99, Cluster: "fake"})
			}, protocol.StatusUnsupported, 0},
			{func(fc *fakeConn, h protocol.Header) { fc.fail(h, protocol.StatusOverloaded) }, Overloaded, openTimeoutDefault},
			{func(fc *fakeConn, h protocol.Header) { fc.sendBytes([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) }, ErrHandshake, 0},
			{func(fc *fakeConn, h protocol.Header) {}, context.DeadlineExceeded, openTimeoutDefault},
		} {
			f.set(func() {
				f.on = func(fc *fakeConn, h protocol.Header) bool {
					x.reply(fc, h)
					return true
				}
			})
			begin := time.Now()
			_, err := Open(bg, Config{Endpoints: []string{"1"}, Dial: f.dial, clock: bubbleClock{}})
			if !errors.Is(err, x.want) || time.Since(begin) != x.took {
				t.Errorf("%v after %s, want %v after %s", err, time.Since(begin), x.want, x.took)
			}
			f.drop()
		}
		if _, err := Open(bg, Config{}); err == nil {
			t.Error("no endpoint is no error")
		}
	})
}

// TestEndpoints: one that answers is enough, and another cluster is not taken for this one.
func TestEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t, func(cfg *Config) { cfg.Endpoints = []string{"nonsense", "2", "1"} })
		n, err := c.Node(bg, "/n")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.Describe(bg, "x"); err != nil {
			t.Fatal(err)
		}
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindHello {
					fc.reply(h, &protocol.HelloReply{Version: protocol.Version, Cluster: "another", Instance: fc.instance, Window: 1, MaxFrame: 1000})
				}
				return h.Kind == protocol.KindHello
			}
		})
		f.drop()
		synctest.Wait()
		if _, err := n.Describe(bg, "x"); err == nil {
			t.Fatal("another cluster answered")
		}
	})
}

// TestBackoff: with nobody there, tries spread out, and stay below one a second or so.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		ctx, cancel := context.WithTimeout(bg, 10*time.Minute)
		defer cancel()
		_, err := Open(ctx, Config{Endpoints: []string{"1"}, clock: bubbleClock{}, Dial: func(ctx context.Context, a string) (net.Conn, error) {
			tries++
			return nil, errors.New("nobody there")
		}})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if tries < 120 || tries > 600 {
			t.Fatalf("%d tries in ten minutes, with up to 5 s between them", tries)
		}

	})
}

// TestStartThatEnded: a start whose answer is lost for as long as the session lives is made again
// as another one.
func TestStartThatEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		sent := 0
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind != protocol.KindSessionStart {
					return false
				}
				switch sent++; sent {
				case 1:
					_ = fc.nc.Close() // it has its effect, and nobody hears of it
					delete(f.conns, fc)
					return true
				case 2:
					fc.fail(h, protocol.StatusSessionExpired)
					return true
				}
				return false
			}
		})
		s, err := c.Session(bg, "/default")
		if err != nil {
			t.Fatal(err)
		}
		ids := make(map[string]int)
		for _, r := range f.all(protocol.KindSessionStart) {
			ids[string(decode[protocol.SessionStart](t, r.body).CreateID)]++
		}
		if len(ids) != 2 || sent != 3 {
			t.Errorf("%d sendings with %d create ids, want 3 with 2", sent, len(ids))
		}
		if err := s.Close(bg); err != nil {
			t.Error(err)
		}
	})
}

// TestTicketOfAnOldKey: a ticket that is worth nothing any more has the session attached again, and
// the new one is shown.
func TestTicketOfAnOldKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		f.set(func() {
			f.version, f.master[2] = 2, 2
			let := map[*fakeConn]bool{}
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				switch {
				case h.Kind >= protocol.KindCreate && h.Kind < protocol.KindPong && fc.instance != f.master[h.Arg+1]:
					fc.fail(h, protocol.StatusWrongShard)
				case h.Kind == protocol.KindPresentTicket && string(decode[protocol.PresentTicket](t, h.Body).Ticket) == "ticket 1":
					fc.fail(h, protocol.StatusBadSession)
				case h.Kind == protocol.KindPresentTicket:
					let[fc] = true
					return false
				case h.Kind == protocol.KindUpdate && !let[fc]:
					fc.fail(h, protocol.StatusBadSession)
				default:
					return false
				}
				return true
			}
		})
		if _, err := s.Update(bg, nameIn(1), nil); err != nil {
			t.Fatal(err)
		}
		if n := f.count(protocol.KindSessionAttach); n != 1 || s.State() != Attached {
			t.Errorf("%d attaches, the session is %v", n, s.State())
		}
	})
}
