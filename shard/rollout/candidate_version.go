package rollout

import "github.com/signalbox-dev/signalbox/protocol"

// matureAt returns when a row of p may be passed on to l; ok is false if it may not as things are.
func (pl *plan) matureAt(p *location, r *row, l *location) (uint64, bool) {
	if p.givesUp(r) || p.shareOnly && r.version == p.target || r.payload && !pl.published.has(r.version) {
		return 0, false
	}
	at := r.at + pl.locationConfig(l).Delay
	bake := pl.locationConfig(p).Bake
	if pl.config.DelayFrom == protocol.FromConverged || bake > 0 {
		if r.converged == 0 {
			return 0, false
		}
		if pl.config.DelayFrom == protocol.FromConverged {
			at = r.converged + pl.locationConfig(l).Delay
		}
		at = max(at, r.converged+bake)
	}
	return at, true
}

// versionMatureAt is matureAt of a version, whichever of its rows is the first: after a rollback it
// has several.
func (pl *plan) versionMatureAt(p *location, version uint64, l *location) (at uint64, ok bool) {
	for i := range p.history {
		if p.history[i].version != version {
			continue
		}
		if m, yes := pl.matureAt(p, &p.history[i], l); yes && (!ok || m < at) {
			at, ok = m, true
		}
	}
	return at, ok
}

// newest is the newest row of p that l may take: by time, then by version.
func (pl *plan) newest(p, l *location, clock uint64) *row {
	for i := len(p.history) - 1; i >= 0; i-- {
		r := &p.history[i]
		if at, ok := pl.matureAt(p, r, l); ok && at <= clock && !pl.givenUp(r.version, p, l) {
			return r
		}
	}
	return nil
}

// newestPublished is the newest version that l may take from the source; 0 none.
func (pl *plan) newestPublished(l *location) uint64 {
	for i := len(pl.published) - 1; i >= 0; i-- {
		if x := &pl.published[i]; !x.withdrawn && !pl.givenUp(x.version, nil, l) {
			return x.version
		}
	}
	return 0
}

// givenUp reports whether a location between p, or the source, and l has given the version up: such
// a location is skipped, but a version that is bad there does not go past it.
func (pl *plan) givenUp(version uint64, p, l *location) bool {
	for i := l.pos - 1; i >= 0 && pl.locations[i] != p; i-- {
		x := pl.locations[i]
		if r := x.row(version); r != nil && x.givesUp(r) {
			return true
		}
	}
	return false
}

// anyVersion stands for a version that is still to be made.
const anyVersion = ^uint64(0)

// candidate returns the version that l would choose now by the normal rule, or 0, and the time when
// it would find one if nothing but time changes; 0: unknown. For the first location of a source
// that makes versions, the candidate is anyVersion.
func (pl *plan) candidate(l *location, reason protocol.TrackReason, clock uint64) (version, at uint64) {
	least := max(l.target, l.floor)
	p := pl.predecessor(l, clock)
	if l.promoted > least && !pl.givenUp(l.promoted, p, l) {
		return l.promoted, clock
	}
	if l.gate.version > least {
		if l.gate.state != gatePassed || pl.givenUp(l.gate.version, p, l) {
			return 0, 0 // the gate's own deadlines say when
		}
		if p == nil {
			return l.gate.version, clock
		}
		if m, ok := pl.versionMatureAt(p, l.gate.version, l); ok && m > clock { // the delay was raised meanwhile
			return 0, m
		} else if ok {
			return l.gate.version, clock
		}
		return 0, 0
	}
	if p == nil {
		if reason == protocol.ReasonAdvance && clock < l.since+pl.config.MinAdvanceInterval {
			if pl.config.Source != protocol.SourcePublished || pl.newestPublished(l) > least {
				return 0, l.since + pl.config.MinAdvanceInterval
			}
			return 0, 0
		}
		if pl.config.Source != protocol.SourcePublished {
			if pl.last >= protocol.MaxTrackVersion {
				return 0, 0
			}
			return anyVersion, clock
		}
		if v := pl.newestPublished(l); v > least {
			return v, clock
		}
		return 0, 0
	}
	if r := pl.newest(p, l, clock); r != nil && r.version > least {
		return r.version, clock
	}
	for i := range p.history {
		r := &p.history[i]
		if r.version <= least {
			continue
		}
		if m, ok := pl.matureAt(p, r, l); ok && m > clock && (at == 0 || m < at) && !pl.givenUp(r.version, p, l) {
			at = m
		}
	}
	return 0, at
}

func (pl *plan) promotable(l *location, clock uint64) uint64 {
	least := max(l.target, l.floor)
	if l.shareOnly {
		return l.target
	}
	if l.excluded {
		return 0
	}
	p := pl.predecessor(l, clock)
	if p == nil {
		if l.gate.version > least {
			return l.gate.version
		}
		if v := pl.newestPublished(l); pl.config.Source == protocol.SourcePublished && v > least {
			return v
		}
		return 0
	}
	for i := len(p.history) - 1; i >= 0; i-- {
		r := &p.history[i]
		if !p.givesUp(r) && (!r.payload || pl.published.has(r.version)) && !pl.givenUp(r.version, p, l) {
			if r.version > least {
				return r.version
			}
			return 0
		}
	}
	return 0
}
