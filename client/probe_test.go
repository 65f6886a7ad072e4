package client

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestProbe: a server from whom others have taken over is given up at once when it is silent, and
// kept when it answers.
func TestProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		cn, err := c.anyConn(bg)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		cn.probe()
		time.Sleep(2 * minSilence)
		if cn.isLost() {
			t.Fatalf("a server that answers was given up: %v", cn.err)
		}
		f.set(func() {
			f.on = func(_ *fakeConn, h protocol.Header) bool { return h.Kind == protocol.KindPing }
		})
		cn.probe()
		time.Sleep(minSilence + time.Millisecond)
		if !cn.isLost() {
			t.Fatal("a silent server was not given up")
		}
	})
}

// TestProbeNotTooSoon: a server that takes its time is not taken for silent, although the
// keep-alive timer looks a moment after the request was sent on an idle connection.
func TestProbeNotTooSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c, n := f.openNode(t)
		time.Sleep(20 * time.Second)
		cn, err := c.anyConn(bg)
		if err != nil {
			t.Fatal(err)
		}
		cn.mu.Lock()
		look := cn.lookAt - cn.clock.now()
		cn.mu.Unlock()
		time.Sleep(look - 10*time.Millisecond)
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindDescribe {
					time.AfterFunc(minSilence/2, func() { f.set(func() { fc.answer(h) }) })
				}
				return h.Kind == protocol.KindDescribe
			}
		})
		if _, err := n.Describe(bg, "x", ReadConsistency(Strict)); err != nil {
			t.Fatal(err)
		}
		for _, r := range f.all(protocol.KindHello) {
			if r.instance != 1 {
				t.Error("another instance was asked who leads")
			}
		}
	})
}

// hang makes an instance say nothing any more on the connections it has, as a stopped process does;
// new ones are not answered either.
func (f *fake) hang(instance uint64) {
	f.set(func() {
		f.on = func(fc *fakeConn, h protocol.Header) bool { return fc.instance == instance }
	})
}

// elect has an instance lead every shard, and say so.
func (f *fake) elect(instance, term uint64) {
	f.set(func() {
		for shard := range f.master {
			f.master[shard] = instance
			for fc := range f.conns {
				if fc.instance == instance {
					fc.send(protocol.KindMapChanged, 0, 0, &protocol.MapChanged{Version: 1, Shard: shard, Master: instance, Term: term})
				}
			}
		}
	})
}

// TestLeaderHangs: requests that wait for a leader that hangs are sent to the new one, with the
// numbers that they had, soon after it is known; so is the attach of sessions at home there, and
// the connection is given up.
func TestLeaderHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.master[3] = 2
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		if _, err := s.Update(bg, nameIn(2), nil); err != nil { // there is a connection to both
			t.Fatal(err)
		}
		f.hang(1)
		began := time.Now()
		type outcome struct {
			what string
			err  error
			took time.Duration
		}
		done := make(chan outcome)
		go func() {
			_, err := s.Acquire(bg, nameIn(1))
			done <- outcome{"acquire", err, time.Since(began)}
		}()
		go func() {
			_, err := s.Update(bg, nameIn(0), nil)
			done <- outcome{"update", err, time.Since(began)}
		}()
		go func() {
			_, err := s.Describe(bg, nameIn(3), ReadConsistency(Strict))
			done <- outcome{"describe", err, time.Since(began)}
		}()
		const election = 900 * time.Millisecond
		time.Sleep(election)
		f.elect(2, 5)
		for range 3 {
			if o := <-done; o.err != nil || o.took > election+formerLeaderTimeout+100*time.Millisecond {
				t.Errorf("%s: %v after %s", o.what, o.err, o.took)
			}
		}
		numbers := map[uint64]bool{}
		for _, r := range f.all(protocol.KindAcquire) {
			numbers[decode[protocol.Acquire](t, r.body).Seq] = true
		}
		if len(numbers) != 1 {
			t.Errorf("the acquire was sent under the numbers %v", numbers)
		}
		time.Sleep(time.Minute)
		if s.State() != Attached || s.Err() != nil {
			t.Error(s.State(), s.Err())
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if at := f.attachedAt[s.id]; at == nil || at.instance != 2 {
			t.Error("the session is not attached at the new leader")
		}
	})
}

// TestLeaderAnswers: a former leader that answers is let answer: nothing is sent twice, and the
// connection stays.
func TestLeaderAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.master[3] = 2
		c := f.open(t)
		s := f.sessionIn(t, c, 2)
		var waiting []func()
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindUpdate && fc.instance == 1 {
					waiting = append(waiting, func() { fc.answer(h) })
					return true
				}
				return false
			}
		})
		done := make(chan error)
		go func() {
			_, err := s.Update(bg, nameIn(1), nil)
			done <- err
		}()
		time.Sleep(100 * time.Millisecond)
		f.elect(2, 5)
		time.Sleep(formerLeaderTimeout / 2)
		f.set(func() {
			for _, answer := range waiting {
				answer()
			}
		})
		if err := <-done; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if n := f.count(protocol.KindUpdate); n != 1 {
			t.Errorf("%d updates were sent", n)
		}
		if n := f.count(protocol.KindHello); n != 2 {
			t.Errorf("%d connections were made", n)
		}
	})
}

// TestOnlyConnectionHangs: the only instance that the client is connected to hangs, so that nobody
// tells of the new leader: it looks for news by itself, without sessions too.
func TestOnlyConnectionHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c, n := f.openNode(t)
		time.Sleep(30 * time.Second) // the next keep-alive is far away
		f.hang(1)
		began := time.Now()
		done := make(chan error)
		go func() {
			_, err := n.Describe(bg, nameIn(1), ReadConsistency(Strict))
			done <- err
		}()
		time.Sleep(time.Millisecond)
		f.elect(2, 5)
		f.set(func() { f.version++ })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 3*minSilence {
			t.Errorf("the read waited for %s", took)
		}
		time.Sleep(hungTimeout + minSilence)
		if l := c.connector(1, ""); l.current.Load() != nil && !l.current.Load().isLost() {
			t.Error("the connection to the silent instance was not given up")
		}
	})
}

// TestSilentReplica: an instance that hangs and leads nothing is noticed by who waits for it.
func TestSilentReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		_, n := f.openNode(t)
		time.Sleep(30 * time.Second)
		f.hang(1)
		ctx, cancel := context.WithTimeout(bg, 2*(hungTimeout+minSilence))
		defer cancel()
		f.set(func() {
			for shard := range f.master { // as of term 0: nobody was elected
				f.master[shard] = 2
			}
			f.version++
		})
		if _, err := n.Describe(ctx, nameIn(1)); err != nil {
			t.Error(err)
		}
	})
}

// TestClusterBeingMade: calls wait for the cluster's tiers as they wait for a leader.
func TestClusterBeingMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.noTiers = true
		c := f.open(t)
		n, err := c.Node(bg, "/n")
		if err != nil {
			t.Fatal(err)
		}
		type call struct {
			what string
			do   func(ctx context.Context) error
		}
		calls := []call{
			{"session", func(ctx context.Context) error { _, err := c.Session(ctx, "/n"); return err }},
			{"describe", func(ctx context.Context) error { _, err := n.Describe(ctx, nameIn(1)); return err }},
			{"list", func(ctx context.Context) error {
				for _, err := range n.List(ctx, "") {
					return err
				}
				return nil
			}},
			{"watch", func(ctx context.Context) error {
				for _, err := range n.Watch(ctx, nameIn(1)) {
					return err
				}
				return nil
			}},
		}
		for _, x := range calls {
			ctx, cancel := brief()
			if err := x.do(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s in a cluster without a tier: %v", x.what, err)
			}
			cancel()
		}
		done := make(chan error)
		for _, x := range calls {
			go func() {
				ctx, cancel := context.WithTimeout(bg, time.Minute)
				defer cancel()
				err := x.do(ctx)
				if x.what == "watch" && errors.Is(err, context.DeadlineExceeded) {
					err = nil // the fake has no streams
				}
				if err != nil {
					err = fmt.Errorf("%s: %w", x.what, err)
				}
				done <- err
			}()
		}
		time.Sleep(5 * time.Second)
		f.set(func() {
			f.noTiers = false
			f.version++
			for fc := range f.conns {
				fc.send(protocol.KindMapChanged, 0, 0, &protocol.MapChanged{Version: f.version})
			}
		})
		for range calls {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
