package client

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestHomeMoves: a session whose home moves is attached again, and holds what it holds meanwhile.
// The word of it may come before the reply to the attach that it is about, which counts for nothing
// then. Other sessions of the connection are left alone.
func TestHomeMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s, err := c.Session(bg, "/n", Timeout(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		other, err := c.Session(bg, "/n")
		if err != nil {
			t.Fatal(err)
		}
		lease, err := s.Acquire(bg, "x", Ephemeral())
		if err != nil {
			t.Fatal(err)
		}
		early := 2 // so many attaches are overtaken by the word that they are void
		moving := 3
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind != protocol.KindSessionAttach {
					return false
				}
				m := decode[protocol.SessionAttach](t, h.Body)
				switch {
				case m.Session != s.ID():
					t.Errorf("session %d attached anew", m.Session)
				case moving > 0:
					moving--
					fc.fail(h, protocol.StatusWrongShard)
					return true
				case early > 0:
					early--
					fc.send(protocol.KindDetached, 0, 1, &protocol.Detached{Session: m.Session, Epoch: m.Epoch})
				}
				return false
			}
			for fc := range f.conns {
				fc.send(protocol.KindDetached, 0, 1, &protocol.Detached{Session: s.ID(), Epoch: 1})
			}
		})
		synctest.Wait()
		if !lease.Held() {
			t.Error("the lease went with the attachment")
		}
		if s.State() != Detached || other.State() != Attached {
			t.Errorf("states: %v, %v", s.State(), other.State())
		}
		time.Sleep(5 * time.Second) // of the bubble
		synctest.Wait()
		if s.State() != Attached || !lease.Held() || lease.Lost() != nil {
			t.Errorf("after the move: %v, held %v, %v", s.State(), lease.Held(), lease.Lost())
		}
		attaches := f.all(protocol.KindSessionAttach)
		if len(attaches) != 6 || early != 0 {
			t.Fatalf("%d attaches", len(attaches))
		}
		last := uint64(1)
		for _, r := range attaches[3:] { // those before were refused
			m := decode[protocol.SessionAttach](t, r.body)
			if m.Epoch <= last {
				t.Errorf("attach epoch %d after %d", m.Epoch, last)
			}
			last = m.Epoch
		}
		// A late word of an older attach changes nothing.
		f.set(func() {
			for fc := range f.conns {
				fc.send(protocol.KindDetached, 0, 1, &protocol.Detached{Session: s.ID(), Epoch: last - 1})
			}
		})
		synctest.Wait()
		if s.State() != Attached {
			t.Error("detached by a word about an older attach")
		}
	})
}

// TestPendingCallsAttachFirst: of the sessions that a planned change sends away at one moment,
// those are attached again at once that a call waits for, or that wait in a queue; the others
// spread over a twentieth of their timeout.
func TestPendingCallsAttachFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		var idle []*Session
		for range 40 {
			idle = append(idle, f.sessionIn(t, c, 0, Timeout(20*time.Second)))
		}
		called := f.sessionIn(t, c, 0, Timeout(20*time.Second))
		began := time.Now()
		f.set(func() {
			for fc := range f.conns {
				for _, s := range append(idle, called) {
					fc.send(protocol.KindDetached, 0, 1, &protocol.Detached{Session: s.ID(), Epoch: 1})
				}
			}
		})
		synctest.Wait()
		if _, err := called.Update(bg, nameIn(1), nil); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("the call waited for %s", took)
		}
		if called.State() != Attached {
			t.Error("the called one is not attached")
		}
		attached := 0
		for _, s := range idle {
			if s.State() == Attached {
				attached++
			}
		}
		if attached > len(idle)/2 {
			t.Errorf("%d of %d idle sessions were attached at once", attached, len(idle))
		}
		time.Sleep(time.Second - time.Since(began))
		synctest.Wait()
		for _, s := range idle {
			if s.State() != Attached {
				t.Errorf("session %d is not attached after a twentieth of its timeout", s.ID())
			}
		}
	})
}

// TestMovingBucket: a call that a shard's master refuses, as the bucket moves, is asked again when
// the new owner says that it serves now, and nobody looks for another master of the shard. The map
// is fetched only if the server does not say that it is the one that the client has.
func TestMovingBucket(t *testing.T) {
	t.Run("server", func(t *testing.T) { testMovingBucket(t, protocol.Failure{Shard: 1, MapVersion: 1}) })
	t.Run("older server", func(t *testing.T) { testMovingBucket(t, protocol.Failure{}) })
}

func testMovingBucket(t *testing.T, refusal protocol.Failure) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 1)
		name := nameIn(0)
		refused := 0
		moving := true
		maps := f.count(protocol.KindMap)
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind != protocol.KindUpdate || !moving {
					return false
				}
				refused++
				refusal.Master, refusal.Term = f.master[1], 1
				fc.refuse(h, refusal)
				return true
			}
		})
		done := make(chan error, 1)
		go func() {
			_, err := s.Update(bg, name, nil)
			done <- err
		}()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		w := c.routes.Load().byShard[1]
		if w.master.Load() != f.master[1] {
			t.Errorf("the shard is looked for at instance %d, not at its master %d", w.master.Load(), f.master[1])
		}
		began := time.Now()
		f.set(func() {
			moving = false
			for fc := range f.conns {
				if fc.instance == f.master[1] {
					fc.send(protocol.KindMapChanged, 0, 0, &protocol.MapChanged{Version: f.version, Shard: 1, Master: f.master[1], Term: 1})
				}
			}
		})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("asked again %s after the word", took)
		}
		if refused < 2 {
			t.Error("was not refused")
		}
		if n := f.count(protocol.KindMap) - maps; n != 0 && refusal.MapVersion != 0 {
			t.Errorf("the map was fetched %d times", n)
		}
	})
}
