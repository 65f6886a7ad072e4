package client

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestHomeMoves: a session whose home moves is attached anew, and holds what it holds meanwhile. The word of it may come before the reply to the attach that it is
// about, which counts for nothing then. Other sessions of the connection are left alone.
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
		for _, r := range attaches {
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
