package rollout

import "github.com/signalbox-dev/signalbox/protocol"

// location is one of the order, or was.
type location struct {
	name             string
	pos              int    // in the order; -1: removed. Invariant: t.locations[pos] is this one
	target           uint64 // 0 none. Invariant: never decreases but by a rollback; it is in the history
	stable           uint64 // while partial: what instances outside the share get
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

// row of a history.
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

// matureAt is when a row of p may be passed on to l; false: not while things are as they are.
func (t *Track) matureAt(p *location, r *row, l *location) (uint64, bool) {
	if r.skip || p.shareOnly && r.version == p.target || r.payload && !t.isPublished(r.version) {
		return 0, false
	}
	at := r.at + t.locationConfig(l).Delay
	bake := t.locationConfig(p).Bake
	if t.config.DelayFrom == protocol.FromConverged || bake > 0 {
		if r.converged == 0 {
			return 0, false
		}
		if t.config.DelayFrom == protocol.FromConverged {
			at = r.converged + t.locationConfig(l).Delay
		}
		at = max(at, r.converged+bake)
	}
	return at, true
}

// newest is the newest row of p that l may take: by time, then by version.
func (t *Track) newest(p, l *location, clock uint64) *row {
	for i := len(p.history) - 1; i >= 0; i-- {
		r := &p.history[i]
		if at, ok := t.matureAt(p, r, l); ok && at <= clock {
			return r
		}
	}
	return nil
}

// candidate is what l would choose now by the normal rule, 0 none, and when it would find one if
// nothing but time changes, 0 unknown. For the first location of a source that makes versions, the
// candidate is anyVersion.
func (t *Track) candidate(l *location, reason protocol.TrackReason, clock uint64) (version, at uint64) {
	least := max(l.target, l.floor)
	if l.promoted > least {
		return l.promoted, clock
	}
	p := t.predecessor(l, clock)
	if l.gate.version > least {
		if l.gate.state != gatePassed {
			return 0, 0 // the gate's own deadlines say when
		}
		if p == nil {
			return l.gate.version, clock
		}
		if r := p.row(l.gate.version); r != nil {
			if m, ok := t.matureAt(p, r, l); ok && m > clock { // the delay was raised meanwhile
				return 0, m
			} else if ok {
				return l.gate.version, clock
			}
		}
		return 0, 0
	}
	if p == nil {
		if reason == protocol.ReasonAdvance && clock < l.since+t.config.MinAdvanceInterval {
			if t.config.Source != protocol.SourcePublished || t.newestPublished() > least {
				return 0, l.since + t.config.MinAdvanceInterval
			}
			return 0, 0
		}
		if t.config.Source != protocol.SourcePublished {
			if t.last >= protocol.MaxTrackVersion {
				return 0, 0
			}
			return anyVersion, clock
		}
		if v := t.newestPublished(); v > least {
			return v, clock
		}
		return 0, 0
	}
	if r := t.newest(p, l, clock); r != nil && r.version > least {
		return r.version, clock
	}
	for i := range p.history {
		r := &p.history[i]
		if r.version <= least {
			continue
		}
		if m, ok := t.matureAt(p, r, l); ok && m > clock && (at == 0 || m < at) {
			at = m
		}
	}
	return 0, at
}

// anyVersion stands for a version that is still to be made.
const anyVersion = ^uint64(0)

// set gives l a target.
func (t *Track) set(l *location, version uint64, reason protocol.TrackReason, now Now, out *Events, text string) {
	from := l.target
	conf := t.locationConfig(l)
	l.target, l.since = version, t.clock
	l.generation++
	l.history = append(l.history, row{version: version, at: t.clock, wall: now.Wall, reason: reason, payload: t.isPublished(version)})
	l.gate, l.promoted, l.reelectRequested, l.sharedAt, l.blockedSince, l.rollback = gate{}, 0, false, 0, 0, reason == protocol.ReasonRollback
	if isReelection(reason) {
		l.reelectAt = t.clock
	}
	t.last = max(t.last, version)
	wasPartial := l.shareOnly
	l.shareOnly = conf.Share > 0 && conf.Share < 100 && from != 0 && reason != protocol.ReasonRollback && l.leaders > 1
	switch {
	case !l.shareOnly:
		l.stable = 0
	case !wasPartial:
		l.stable = from
		t.pickShare(l)
	}
	t.recount(l)
	t.collect(l)
	t.emit(now, out, protocol.TrackEvent{
		Kind: protocol.TrackEventTarget, Reason: reason, Share: l.shareOnly, Location: l.name, Version: version,
		From: from, Generation: l.generation, Text: text,
	})
}

// collect drops rows nobody needs: older than retention and than twice the delays, but not those
// that a successor may still take, the target, and the last ten.
func (t *Track) collect(l *location) {
	var sum, longest uint64
	for i := range t.config.Locations {
		c := &t.config.Locations[i]
		wait := c.Delay + c.Bake
		sum += wait
		if i > l.pos {
			longest = max(longest, wait)
		}
	}
	if l.pos >= 0 {
		longest += t.config.Locations[l.pos].Bake
	}
	age := max(t.config.Retention, 2*sum)
	// The slowest successor's row: the newest that it may take already. All younger ones may be
	// taken later.
	needed := -1
	for i := len(l.history) - 1; i >= 0 && needed < 0; i-- {
		r := &l.history[i]
		from := r.at
		if t.config.DelayFrom == protocol.FromConverged || l.pos >= 0 && t.config.Locations[l.pos].Bake > 0 {
			from = r.converged
		}
		if !r.skip && from != 0 && from+longest <= t.clock {
			needed = i
		}
	}
	n := len(l.history)
	kept := l.history[:0]
	for i, r := range l.history {
		if i >= n-minHistoryRows || i == needed || r.version == l.target || r.version == l.stable && l.shareOnly || r.at+age >= t.clock {
			kept = append(kept, r)
		}
	}
	clear(l.history[len(kept):])
	l.history = kept
	for len(l.history) > MaxHistory {
		l.thin()
	}
}

// thin drops the row whose neighbours are closest together in time: what is left covers all ages,
// so that a successor with a long delay still finds rows that mature. First and last rows and the
// target stay.
func (l *location) thin() {
	best, least := 1, uint64(maxTime)
	for i := 1; i < len(l.history)-minHistoryRows; i++ {
		gap := l.history[i+1].at - l.history[i-1].at
		if l.history[i].version != l.target && l.history[i].version != l.stable && gap < least {
			best, least = i, gap
		}
	}
	l.history = append(l.history[:best], l.history[best+1:]...)
}
