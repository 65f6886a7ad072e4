package sim

import (
	"fmt"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestDeadSessionsEnd changes leaders again and again. The session of a client that died ends all
// the same: after an unplanned change within the timeout and the grace period once more, after
// planned ones within the timeout. Times are those of the simulation.
func TestDeadSessionsEnd(t *testing.T) {
	const timeout, grace = 2_000, 10_000
	for _, planned := range []bool{false, true} {
		for _, every := range []uint64{1_000, 2_000, 3_000, 8_000} {
			t.Run(fmt.Sprintf("planned=%v/%d", planned, every), func(t *testing.T) {
				w := newWorld(Options{Seed: 1, Off: ^Faults(0)})
				w.sessionsEach, w.timeout, w.grace, w.minGrace, w.maxGrace, w.doubt = 1, timeout, grace, grace, grace, 60_000
				w.bootstrap()
				for w.now < begin+5_000 {
					w.step()
				}
				h := w.clients[0].holders[0]
				if !h.believes() {
					t.Fatal("the client has no session")
				}
				session := h.s.ID
				home, died := w.ownerOf(protocol.SessionBucket(session)), w.now
				h.c.dead = true // without a word; its connection stays half open

				// What log time may be lost with each leader: the first stamp comes after half a
				// second, at the next tick, and the others after an eighth of its time.
				lost := max(500, every/8) + 200
				n := (timeout+grace)/(every-lost) + 1
				most := 500 + (n+1)*every
				if planned {
					// The last ping may have been three eighths of the timeout before. A change
					// takes some steps.
					most = timeout*11/8 + 500
				}
				next := died + 500 // the leader has not missed it yet
				for changes := 0; w.ended[session] == 0; w.step() {
					if w.now > died+most {
						t.Fatalf("the session lives %d ms after its client died, want at most %d; leaders changed %d times",
							w.now-died, most, changes)
					}
					if w.now < next {
						continue
					}
					next += every
					changes++
					to := home.replicas[changes%replicas]
					if planned {
						home.transfer(to)
					} else {
						home.elect(to)
					}
				}
				t.Logf("the session ended %d ms after its client died, at most %d", w.ended[session]-died, most)
			})
		}
	}
}
