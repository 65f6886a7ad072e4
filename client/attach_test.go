package client

import (
	"testing"
	"testing/synctest"

	"github.com/signalbox-dev/signalbox/protocol"
)

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
