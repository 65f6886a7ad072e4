package rollout

import "github.com/signalbox-dev/signalbox/protocol"

// pauseMode of a track or a location. Hard: not even a version that was reported bad is re-elected.
type pauseMode uint8

const (
	running pauseMode = iota
	pausedSoft
	pausedHard
)

// plan is the input of a track's decisions: its config, its locations in order, and its versions.
// Decisions depend on that, on the locations' own state and on the time alone. Its methods change
// nothing.
type plan struct {
	config      protocol.TrackConfig
	last        uint64 // see raiseLast. Invariant: not below any version in the track; a generated one is above it
	paused      pauseMode
	sourceError string      // of the external generator; empty when it worked last
	locations   []*location // the order, then those that were removed from it
	published   versionList
}

// find gives the location that is in the order.
func (pl *plan) find(name string) (*location, error) {
	for _, l := range pl.locations {
		if l.name == name && l.pos >= 0 {
			return l, nil
		}
	}
	return nil, unknownLocation(name)
}

func (pl *plan) locationConfig(l *location) *protocol.LocationConfig {
	return &pl.config.Locations[l.pos]
}

// ordered is the locations that are in the order.
func (pl *plan) ordered() []*location { return pl.locations[:len(pl.config.Locations)] }

// predecessor is the location that l takes versions from at this time: the nearest before it that
// is neither excluded nor passed over as empty; nil: the source.
func (pl *plan) predecessor(l *location, clock uint64) *location {
	for i := l.pos - 1; i >= 0; i-- {
		if p := pl.locations[i]; !p.excluded && !pl.skipped(p, clock) {
			return p
		}
	}
	return nil
}

// skipped reports whether the location has been empty for so long that its successor skips it.
func (pl *plan) skipped(l *location, clock uint64) bool {
	return pl.config.SkipEmptyAfter > 0 && len(l.members) == 0 && clock >= l.emptySince+pl.config.SkipEmptyAfter
}

// first is the location that takes versions from the source now.
func (pl *plan) first(clock uint64) *location {
	for _, l := range pl.ordered() {
		if !l.excluded && !pl.skipped(l, clock) {
			return l
		}
	}
	return nil
}

// heldVersions are those that locations behind l have gates for, or were promoted to.
func (pl *plan) heldVersions(l *location) (list []uint64) {
	for _, x := range pl.ordered()[l.pos+1:] {
		for _, v := range [...]uint64{x.gate.version, x.promoted} {
			if v != 0 {
				list = append(list, v)
			}
		}
	}
	return list
}
