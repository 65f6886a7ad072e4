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
