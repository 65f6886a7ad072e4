package rollout

import (
	"cmp"

	"github.com/signalbox-dev/signalbox/protocol"
)

// instance of a location, while its session lives. It is registered by a session, under an
// incarnation that no other has.
type instance struct {
	id          string
	session     uint64
	incarnation uint64
	loc         *location
	role        protocol.TrackInstanceRole
	demoted     bool // counts as a follower: it stalled
	inShare     bool // of the location's share
	meta        string
	registered  uint64
	roleAt      uint64 // log time since when it has its role
	sent        uint64 // the version that was sent to it last, 0 none
	sentGen     uint64 // the location's generation then
	sentAt      uint64 // log time when it was sent first
	seq         uint64 // of the report
	report      protocol.UpdateReport
	reportGen   uint64 // the location's generation when it came
	reportAt    uint64

	// Derived: its part of its location's counts, and its places in the lists of its session's and
	// its location's instances.
	contribution          contribution
	atSession, atLocation int
}

func (i *instance) leads() bool { return i.role == protocol.InstanceLeader && !i.demoted }

// reached reports whether the instance has the target or a later version of the track. A higher
// number that the track never had does not count: it may be a version of a deleted track of the
// same name.
func (i *instance) reached(pl *plan) bool {
	l, current := i.loc, i.report.Current
	return current == l.target || current > l.target && current <= pl.last && !l.rollback
}

func byID(a, b *instance) int { return cmp.Compare(a.id, b.id) }

// isNewReport reports whether to store a report: it is later than the stored one and differs, or
// reports are missing between the two. One of those may still be on its way, and would be taken for
// the latest. An error is also reported again for a new target with the same version.
func (i *instance) isNewReport(r *protocol.UpdateReport) bool {
	if r.Seq <= i.seq {
		return false
	}
	again := r.Target == i.loc.target && i.reportGen != i.loc.generation && r.Code != CodeNone && r.Code != CodeOK
	return again || r.Seq > i.seq+1 || !sameReport(i.report, *r)
}

// sameReport reports whether two reports differ in their numbers alone.
func sameReport(a, b protocol.UpdateReport) bool {
	a.Seq = b.Seq
	return a == b
}

// assigned is the version the instance is to have.
func (i *instance) assigned() uint64 {
	if i.loc.shareOnly && !i.inShare {
		return i.loc.stable
	}
	return i.loc.target
}

// mustBeSent reports whether the assigned version was not sent to the instance.
func (i *instance) mustBeSent() bool {
	v := i.assigned()
	return i.loc.pos >= 0 && v != 0 && (i.sent != v || i.sentGen != i.loc.generation)
}
