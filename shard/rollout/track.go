package rollout

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Now is the time of a command: Log is the bucket's log time, which never goes back; Wall is the
// batch's wall time, for display and for the timestamp oracle.
type Now struct{ Log, Wall uint64 }

// pauseMode of a track or a location. Hard: not even a version that was reported bad is re-elected.
type pauseMode uint8

const (
	running pauseMode = iota
	pausedSoft
	pausedHard
)

// Track is one rollout. What is marked derived is not in its record.
type Track struct {
	config       protocol.TrackConfig
	revision     uint64 // of the config, from 1
	clock        uint64 // log time of the latest change. Invariant: nothing in the track is later
	last         uint64 // Invariant: not below any version in the track; a generated one is above it
	incarnations uint64 // counter. Invariant: not below any instance's
	paused       pauseMode
	sourceError  string      // of the external generator; empty when it worked last
	locations    []*location // the order, then those that were removed from it
	published    []published // by version
	instances    map[string]*instance
	sessions     map[uint64][]*instance // derived
	bytes        uint64                 // derived: what instances and published versions count
	configBytes  uint64                 // derived: what config counts
}

// New makes a track with the config's revision 1.
func New(now Now, config protocol.TrackConfig, out *Events) (*Track, error) {
	c, err := Normalize(config)
	if err != nil {
		return nil, err
	}
	t := &Track{config: c, revision: 1, instances: map[string]*instance{}, sessions: map[uint64][]*instance{}}
	t.clock, t.configBytes = t.clockAt(now), ConfigBytes(&c)
	for i := range c.Locations {
		t.locations = append(t.locations, &location{name: c.Locations[i].Name, pos: i, emptySince: t.clock})
	}
	t.emit(now, out, protocol.TrackEvent{Kind: protocol.TrackEventAdmin, Generation: 1, Text: "the track is created"})
	t.updateStates(now, out)
	return t, nil
}

// clockAt is the time a call happens at: it never goes back, whatever the caller says.
func (t *Track) clockAt(now Now) uint64 { return max(t.clock, min(now.Log, maxTime), 1) }

// Revision of the config, for compare-and-set.
func (t *Track) Revision() uint64 { return t.revision }

// Config as it is in force. It must not be changed.
func (t *Track) Config() protocol.TrackConfig { return t.config }

// NumInstances is how many there are.
func (t *Track) NumInstances() int { return len(t.instances) }

// find gives the location that is in the order.
func (t *Track) find(name string) (*location, error) {
	for _, l := range t.locations {
		if l.name == name && l.pos >= 0 {
			return l, nil
		}
	}
	return nil, ErrUnknownLocation
}

func (t *Track) locationConfig(l *location) *protocol.LocationConfig {
	return &t.config.Locations[l.pos]
}

// ordered is the locations that are in the order.
func (t *Track) ordered() []*location { return t.locations[:len(t.config.Locations)] }

// predecessor is the location that l takes versions from at this time: the nearest before it that
// is neither excluded nor passed over as empty; nil: the source.
func (t *Track) predecessor(l *location, clock uint64) *location {
	for i := l.pos - 1; i >= 0; i-- {
		if p := t.locations[i]; !p.excluded && !t.skipped(p, clock) {
			return p
		}
	}
	return nil
}

// skipped: the location has been empty for so long that its successor looks past it.
func (t *Track) skipped(l *location, clock uint64) bool {
	return t.config.SkipEmptyAfter > 0 && len(l.members) == 0 && clock >= l.emptySince+t.config.SkipEmptyAfter
}

// Configure puts a new config in place of the one with this revision. Locations keep their targets,
// histories and delays by name; see the DESIGN.md for those that are new, moved or gone.
func (t *Track) Configure(now Now, revision uint64, config protocol.TrackConfig, out *Events) error {
	if revision != t.revision {
		return revisionMismatch(revision, t.revision)
	}
	c, err := Normalize(config)
	if err != nil {
		return err
	}
	named := func(name string) int {
		return slices.IndexFunc(c.Locations, func(l protocol.LocationConfig) bool { return l.Name == name })
	}
	var removed []*location
	for _, l := range t.locations {
		if named(l.name) < 0 {
			removed = append(removed, l)
		}
	}
	clock := t.clockAt(now)
	for i := len(removed) - 1; i >= 0 && len(removed) > maxRemoved; i-- { // the one removed first is last: it goes, unless it has instances
		if len(removed[i].members) == 0 {
			removed = slices.Delete(removed, i, i+1)
		}
	}
	if len(removed) > maxRemoved {
		return ErrTooManyLocations
	}
	t.clock = clock
	old, before := t.config, t.locations
	same := slices.EqualFunc(old.Locations, c.Locations,
		func(a, b protocol.LocationConfig) bool { return a.Name == b.Name && slices.Equal(a.Gates, b.Gates) })
	var order []*location
	for i := range c.Locations {
		j := slices.IndexFunc(before, func(l *location) bool { return l.name == c.Locations[i].Name })
		if j < 0 {
			order = append(order, &location{name: c.Locations[i].Name, pos: i, emptySince: clock})
			continue
		}
		l := before[j]
		if !same || old.Source != c.Source { // gates begin again: the version may have another source now
			l.gate = gate{}
		}
		if l.pos < 0 && len(l.members) == 0 {
			l.emptySince = clock
		}
		l.pos = i
		order = append(order, l)
	}
	for _, l := range removed {
		l.pos, l.gate, l.promoted, l.reelectRequested, l.shareOnly = -1, gate{}, 0, false, false
		l.paused, l.excluded, l.stable, l.sharedAt, l.blockedSince = running, false, 0, 0, 0
	}
	t.config, t.configBytes, t.locations = c, ConfigBytes(&c), append(order, removed...)
	t.revision++
	for _, l := range t.locations {
		t.recount(l)
	}
	t.emit(now, out, protocol.TrackEvent{Kind: protocol.TrackEventAdmin, Generation: t.revision, Text: "the config is changed"})
	t.updateStates(now, out)
	return nil
}
