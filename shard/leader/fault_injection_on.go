//go:build planted

package leader

// Faults to switch on, one at a time.
var (
	faultNoBarrier        bool // R1: a pong without a barrier
	faultEarlyBarrier     bool // R1: a barrier vouches for pings that came while it was under way
	faultPongUndecided    bool // R4: a pong while a detach is on its way
	faultMovesUnasked     bool // guests that moves make are not asked about
	faultStartUnasked     bool // a new leadership asks about no guest
	faultSubscriptionKept bool // a home that gives no sign of life is believed in
	faultHomeKept         bool // another leader of a home is taken for the one before
	faultNonOwner         bool // a shard that does not own the home bucket says who is gone
	faultReplyUnproved    bool // a home answers without a barrier
	faultReleaseOnce      bool // a release is proposed once
	faultRetryIsGone      bool // retry is taken for gone
	faultPauseCounts      bool // R8: log time runs on in a pause
	faultAgeIgnored       bool // an attach ahead of the log does not count the age of the last barrier
	faultEpochKept        bool // guests do not ask again under another bucket epoch
)

// Planted are the switches by name. Nothing may run while one is set.
var Faults = map[string]*bool{
	"no-barrier":    &faultNoBarrier,
	"early-barrier": &faultEarlyBarrier,
	"pong-in-doubt": &faultPongUndecided,
	"moves-unasked": &faultMovesUnasked,
	"start-unasked": &faultStartUnasked,
	"link-kept":     &faultSubscriptionKept,
	"home-kept":     &faultHomeKept,
	"non-owner":     &faultNonOwner,
	"ask-unproved":  &faultReplyUnproved,
	"release-once":  &faultReleaseOnce,
	"retry-is-gone": &faultRetryIsGone,
	"pause-counts":  &faultPauseCounts,
	"age-ignored":   &faultAgeIgnored,
	"epoch-kept":    &faultEpochKept,
}
