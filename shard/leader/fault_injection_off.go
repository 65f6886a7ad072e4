//go:build !planted

package leader

// Faults that builds with the planted tag can inject, to prove that a test finds them (server/sim).
// Here they are constants and leave nothing in the code.
const (
	faultNoBarrier        = false // R1: a pong without a barrier
	faultEarlyBarrier     = false // R1: a barrier renews for pings that came after its start
	faultPongUndecided    = false // R4: a pong while a detach is on its way
	faultMovesUnasked     = false // remote sessions created by moves are not requested
	faultStartUnasked     = false // a new leadership requests no remote session
	faultSubscriptionKept = false // a subscription without heartbeats is trusted
	faultHomeKept         = false // another leader of a home is taken for the previous one
	faultNonOwner         = false // a shard that does not own the home bucket reports ended sessions
	faultReplyUnproved    = false // a home answers without a barrier
	faultReleaseOnce      = false // a release is proposed once
	faultRetryIsGone      = false // retry is taken for gone
	faultPauseCounts      = false // R8: log time runs during a pause
	faultAgeIgnored       = false // an unlogged attach ignores the age of the last barrier
	faultEpochKept        = false // remote sessions are not requested again under another bucket epoch
)
