//go:build planted

package shard

// Faults to switch on, one at a time.
var (
	plantOldEpoch      bool // a batch of an older leader epoch is applied
	plantNoGrace       bool // a take-over gives no grace period
	plantGraceAtOnce   bool // a lowered grace period counts at once
	plantTimeRestarts  bool // a change of leader gives detached sessions their whole timeout again
	plantHandedStays   bool // a hand-over that did not come about counts for the next take-over
	plantSweepRestarts bool // a take-over has the sweep begin at the first session again
	plantOverLimit     bool // one unit more than the limit fits
	plantPastQueue     bool // who fits is granted past the queue
	plantOrdersRestart bool // order ids start again with a move
	plantNoMemory      bool // requests are carried out again when they come again
	plantMemoryStays   bool // the memory of requests does not move with its bucket
	plantGoneForgotten bool // the id of a remote session that is gone is taken for a new one
	plantAnyActivate   bool // an activation does not look at the epoch
	plantNotReleased   bool // an activation releases nothing of who is gone
	plantNonceIgnored  bool // an attach with an equal epoch is a repeat, whoever sends it
)

// restartTimes is what plantTimeRestarts does.
func (m *Machine) restartTimes() {
	for _, p := range m.sessions {
		if s := p.home; s != nil && !p.ended && !s.attached {
			m.touchSessionRecord(p)
			m.arm(s, max(s.expiry.at, m.logTime+uint64(s.timeout)))
		}
	}
}

// Planted are the switches by name. Nothing may run while one is set.
var Planted = map[string]*bool{
	"old-epoch":      &plantOldEpoch,
	"no-grace":       &plantNoGrace,
	"grace-at-once":  &plantGraceAtOnce,
	"time-restarts":  &plantTimeRestarts,
	"handed-stays":   &plantHandedStays,
	"sweep-restarts": &plantSweepRestarts,
	"over-limit":     &plantOverLimit,
	"past-queue":     &plantPastQueue,
	"orders-restart": &plantOrdersRestart,
	"no-memory":      &plantNoMemory,
	"memory-stays":   &plantMemoryStays,
	"gone-forgotten": &plantGoneForgotten,
	"any-activate":   &plantAnyActivate,
	"not-released":   &plantNotReleased,
	"nonce-ignored":  &plantNonceIgnored,
}
