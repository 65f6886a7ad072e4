package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

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
		ctx, cancel := brief()
		defer cancel()
		if _, err := s.Acquire(ctx, name); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrOutcomeUnknown) {
			t.Fatal(err)
		}
		l, err := s.Acquire(bg, name)
		if err != nil {
			t.Fatal(err)
		}
		var seen []seenRequest // a ping may come at this moment
		f.set(func() { seen = slices.Clone(f.log) })
		var order []string
		for _, r := range seen {
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

// TestRefusedWhileQueued: an acquire that was queued and is refused when it is sent again has an
// entry at the server still, unless the refusal says that there is none. It is given back, and the
// name is free for the next only then.
func TestRefusedWhileQueued(t *testing.T) {
	for status, releases := range map[protocol.Status]int{
		protocol.StatusForbidden: 1, protocol.StatusUnauthenticated: 1, protocol.StatusInternal: 1,
		protocol.StatusAborted: 0, protocol.StatusNotFound: 0,
		protocol.StatusPreconditionFailed: 0, protocol.StatusBadRequest: 0,
	} {
		t.Run(status.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				c := f.open(t)
				s := f.sessionIn(t, c, 0)
				name := nameIn(3)
				queued := false
				f.set(func() {
					f.on = func(fc *fakeConn, h protocol.Header) bool {
						switch {
						case h.Kind != protocol.KindAcquire:
							return false
						case queued:
							fc.fail(h, status)
						default:
							queued = true
							fc.reply(h, &protocol.AcquireReply{State: protocol.Accepted, OrderID: 9})
						}
						return true
					}
				})
				acquired := make(chan error, 1)
				go func() {
					_, err := s.Acquire(bg, name)
					acquired <- err
				}()
				synctest.Wait()
				f.drop()
				if err := <-acquired; !errors.Is(err, status) {
					t.Fatal(err)
				}
				f.set(func() { f.on = nil })
				if _, err := s.Acquire(bg, name); err != nil {
					t.Fatal(err)
				}
				var order []protocol.Kind
				f.mu.Lock()
				defer f.mu.Unlock()
				for _, r := range f.log {
					if r.kind == protocol.KindAcquire || r.kind == protocol.KindRelease {
						order = append(order, r.kind)
					}
				}
				want := []protocol.Kind{protocol.KindAcquire, protocol.KindAcquire, protocol.KindAcquire}
				if releases > 0 {
					want = slices.Insert(want, 2, protocol.KindRelease)
				}
				if !slices.Equal(order, want) {
					t.Errorf("sent %v, want %v", order, want)
				}
			})
		})
	}
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
		ctx, cancel := brief()
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
				fc.send(protocol.KindAcquireResult, 0, 2,
					&protocol.AcquireResult{Session: s.id, Seq: m.Seq + 7, State: protocol.NotAcquired})
				for range 2 {
					fc.send(protocol.KindAcquireResult, 0, 2,
						&protocol.AcquireResult{Session: s.id, Seq: m.Seq, State: protocol.Acquired, OrderID: 10})
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
					out := protocol.AppendFrame(nil, h.Kind|protocol.KindReply, h.ID, 0,
						&protocol.AcquireReply{State: protocol.Acquired, OrderID: 5})
					out = protocol.AppendFrame(out, protocol.KindLeaseLost, 0, 2,
						&protocol.LeaseLost{Session: s.id, Name: []byte(name), OrderID: 5})
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
