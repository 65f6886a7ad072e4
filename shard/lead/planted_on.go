//go:build planted

package lead

// Faults to switch on, one at a time.
var (
	plantNoBarrier    bool // R1: a pong without a barrier
	plantEarlyBarrier bool // R1: a barrier vouches for pings that came while it was under way
	plantPongInDoubt  bool // R4: a pong while a detach is on its way
	plantMovesUnasked bool // guests that moves make are not asked about
	plantStartUnasked bool // a new leadership asks about no guest
	plantLinkKept     bool // a home that gives no sign of life is believed in
	plantHomeKept     bool // another leader of a home is taken for the one before
	plantNonOwner     bool // a shard that does not own the home bucket says who is gone
	plantAskUnproved  bool // a home answers without a barrier
	plantReleaseOnce  bool // a release is proposed once
	plantRetryIsGone  bool // retry is taken for gone
	plantPauseCounts  bool // R8: log time runs on in a pause
	plantAgeIgnored   bool // an attach ahead of the log does not count the age of the last barrier
	plantEpochKept    bool // guests do not ask again under another bucket epoch
)

// Planted are the switches by name. Nothing may run while one is set.
var Planted = map[string]*bool{
	"no-barrier":    &plantNoBarrier,
	"early-barrier": &plantEarlyBarrier,
	"pong-in-doubt": &plantPongInDoubt,
	"moves-unasked": &plantMovesUnasked,
	"start-unasked": &plantStartUnasked,
	"link-kept":     &plantLinkKept,
	"home-kept":     &plantHomeKept,
	"non-owner":     &plantNonOwner,
	"ask-unproved":  &plantAskUnproved,
	"release-once":  &plantReleaseOnce,
	"retry-is-gone": &plantRetryIsGone,
	"pause-counts":  &plantPauseCounts,
	"age-ignored":   &plantAgeIgnored,
	"epoch-kept":    &plantEpochKept,
}
