//go:build !planted

package shard

// Faults that builds with the planted tag can switch on, to see who finds them (server/sim). Here they are false, and leave nothing in the code.
const (
	plantOldEpoch      = false // a batch of an older leader epoch is applied
	plantNoGrace       = false // a take-over gives no grace period
	plantGraceAtOnce   = false // a lowered grace period counts at once
	plantTimeRestarts  = false // a change of leader gives detached sessions their whole timeout again
	plantHandedStays   = false // a hand-over that did not come about counts for the next take-over
	plantSweepRestarts = false // a take-over has the sweep begin at the first session again
	plantOverLimit     = false // one unit more than the limit fits
	plantPastQueue     = false // who fits is granted past the queue
	plantOrdersRestart = false // order ids start again with a move
	plantNoMemory      = false // requests are carried out again when they come again
	plantMemoryStays   = false // the memory of requests does not move with its bucket
	plantGoneForgotten = false // the id of a remote session that is gone is taken for a new one
	plantAnyActivate   = false // an activation does not look at the epoch
	plantNotReleased   = false // an activation releases nothing of who is gone
	plantNonceIgnored  = false // an attach with an equal epoch is a repeat, whoever sends it
)

func (m *Machine) restartTimes() {}
