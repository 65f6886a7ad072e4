//go:build !planted

package lead

// Faults that builds with the planted tag can switch on, to see who finds them (server/sim). Here they are false, and leave nothing in the code.
const (
	plantNoBarrier    = false // R1: a pong without a barrier
	plantEarlyBarrier = false // R1: a barrier vouches for pings that came while it was under way
	plantPongInDoubt  = false // R4: a pong while a detach is on its way
	plantMovesUnasked = false // guests that moves make are not asked about
	plantStartUnasked = false // a new leadership asks about no guest
	plantLinkKept     = false // a home that gives no sign of life is believed in
	plantHomeKept     = false // another leader of a home is taken for the one before
	plantNonOwner     = false // a shard that does not own the home bucket says who is gone
	plantAskUnproved  = false // a home answers without a barrier
	plantReleaseOnce  = false // a release is proposed once
	plantRetryIsGone  = false // retry is taken for gone
	plantPauseCounts  = false // R8: log time runs on in a pause
	plantAgeIgnored   = false // an attach ahead of the log does not count the age of the last barrier
	plantEpochKept    = false // guests do not ask again under another bucket epoch
)
