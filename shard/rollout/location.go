package rollout

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// location is one of the order, or was.
type location struct {
	name             string
	pos              int    // in the order; -1: removed. Invariant: t.locations[pos] is this one
	target           uint64 // 0 none. Invariant: never decreases but by a rollback; it is in the history
	stable           uint64 // while partial: the version of instances outside the share
	since            uint64 // log time of the target
	generation       uint64 // +1 with each target
	history          []row  // Invariant: in order of at; of version too, rollbacks excepted
	floor            uint64 // versions up to it are not chosen: rolled back from, or refused by a gate
	gate             gate
	promoted         uint64 // a version to take without delay and gates
	rollback         bool   // until converged on the target of a rollback
	reelectAt        uint64 // last re-election, 0 none
	reelectRequested bool   // an operator wants a re-election
	paused           pauseMode
	excluded         bool
	emptySince       uint64              // with members: meaningless
	shareOnly        bool                // the target is for the share only
	sharedAt         uint64              // the share has loaded it; 0 not yet
	blockedSince     uint64              // since when leaders that must have the target have it not; 0 all have
	announced        protocol.TrackState // the state that watches were sent last

	// Derived: counts of members, kept by account and recount.
	members   []*instance // in no order: nothing may depend on it
	leaders   int
	counted   int // leaders that must have the target: all, or those in the share
	unreached int // of the counted
	explicit  int // reports that the target is bad
	suspects  [2]suspects
}

// suspects are members that could not get the target from the source, over the attempts: [0]
// leaders, [1] followers, which count where there is no leader.
type suspects struct {
	n  int
	at uint64 // the first one re-elects at this time
}

type row struct {
	version   uint64
	at        uint64
	converged uint64 // 0 not
	wall      uint64
	reason    protocol.TrackReason
	skip      bool // never passed on
	payload   bool // it was published: passed on only while its payload is kept
}

func (l *location) row(version uint64) *row {
	for i := len(l.history) - 1; i >= 0; i-- {
		if l.history[i].version == version {
			return &l.history[i]
		}
	}
	return nil
}

// givesUp reports whether the location never passes a row on: it was skipped, or it is the target,
// which an instance reported bad, or an operator gave up, so that the next poll skips it.
func (l *location) givesUp(r *row) bool {
	return r.skip || r.version == l.target && (l.explicit > 0 || l.reelectRequested)
}

// collect drops rows nobody needs: older than retention and than twice the delays, but not those
// that a successor may still take, those that are held, the target, and the last ten.
func (l *location) collect(config *protocol.TrackConfig, held []uint64, clock uint64) {
	var sum, longest uint64
	for i := range config.Locations {
		c := &config.Locations[i]
		wait := c.Delay + c.Bake
		sum += wait
		if i > l.pos {
			longest = max(longest, wait)
		}
	}
	if l.pos >= 0 {
		longest += config.Locations[l.pos].Bake
	}
	age := max(config.Retention, 2*sum)
	// The slowest successor's row: the newest that it may take already. All younger ones may be
	// taken later.
	needed := -1
	for i := len(l.history) - 1; i >= 0 && needed < 0; i-- {
		r := &l.history[i]
		from := r.at
		if config.DelayFrom == protocol.FromConverged || l.pos >= 0 && config.Locations[l.pos].Bake > 0 {
			from = r.converged
		}
		if !r.skip && from != 0 && from+longest <= clock {
			needed = i
		}
	}
	n := len(l.history)
	kept := l.history[:0]
	for i, r := range l.history {
		if i >= n-minHistoryRows || i == needed || r.version == l.target ||
			r.version == l.stable && l.shareOnly || r.at+age >= clock || slices.Contains(held, r.version) {
			kept = append(kept, r)
		}
	}
	clear(l.history[len(kept):])
	l.history = kept
	for len(l.history) > MaxHistory {
		l.thin(held)
	}
}

// thin drops the row whose neighbours are closest together in time: the remaining rows cover all
// ages, so that a successor with a long delay still finds rows that mature. First and last rows,
// the target and versions held by successors stay.
func (l *location) thin(held []uint64) {
	best, least := 1, uint64(maxTime)
	for i := 1; i < len(l.history)-minHistoryRows; i++ {
		v, gap := l.history[i].version, l.history[i+1].at-l.history[i-1].at
		if v != l.target && v != l.stable && gap < least && !slices.Contains(held, v) {
			best, least = i, gap
		}
	}
	l.history = append(l.history[:best], l.history[best+1:]...)
}
