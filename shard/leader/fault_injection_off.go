//go:build !planted

package leader

// Faults that builds with the planted tag can switch on, to see who finds them (server/sim). Here they are false, and leave nothing in the code.
const (
	faultNoBarrier        = false // R1: a pong without a barrier
	faultEarlyBarrier     = false // R1: a barrier vouches for pings that came while it was under way
	faultPongUndecided    = false // R4: a pong while a detach is on its way
	faultMovesUnasked     = false // guests that moves make are not asked about
	faultStartUnasked     = false // a new leadership asks about no guest
	faultSubscriptionKept = false // a home that gives no sign of life is believed in
	faultHomeKept         = false // another leader of a home is taken for the one before
	faultNonOwner         = false // a shard that does not own the home bucket says who is gone
	faultReplyUnproved    = false // a home answers without a barrier
	faultReleaseOnce      = false // a release is proposed once
	faultRetryIsGone      = false // retry is taken for gone
	faultPauseCounts      = false // R8: log time runs on in a pause
	faultAgeIgnored       = false // an attach ahead of the log does not count the age of the last barrier
	faultEpochKept        = false // guests do not ask again under another bucket epoch
)
