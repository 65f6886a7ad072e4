package rollout

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Now is the time of a command: Log is the bucket's log time, which never goes back; Wall is the
// batch's wall time, for display and for the timestamp oracle.
type Now struct{ Log, Wall uint64 }

// Track is one rollout. What is marked derived is not in its record.
type Track struct {
	plan
	revision     uint64 // of the config
	clock        uint64 // log time of the latest change. Invariant: nothing in the track is later
	instances    instanceTable
	versionBytes uint64 // derived: bytes that published versions count
	configBytes  uint64 // derived: bytes that config counts
}

// New makes a track with the config's revision 1.
func New(now Now, config protocol.TrackConfig, out *Events) (*Track, error) {
	return NewAfter(now, 0, config, out)
}

// NewAfter makes a track with the config's revision former+1. former is at least the highest
// revision of a deleted track of the same name.
func NewAfter(now Now, former uint64, config protocol.TrackConfig, out *Events) (*Track, error) {
	c, err := Normalize(config)
	if err != nil {
		return nil, err
	}
	t := &Track{plan: plan{config: c}, revision: former + 1, instances: newInstanceTable(), configBytes: ConfigBytes(&c)}
	x := t.change(now, out)
	for i := range c.Locations {
		t.locations = append(t.locations, &location{name: c.Locations[i].Name, pos: i, emptySince: t.clock})
	}
	x.emit(protocol.TrackEvent{Kind: protocol.TrackEventAdmin, Generation: t.revision, Text: "the track is created"})
	x.updateStates()
	return t, nil
}

// clockAt is the time a call happens at: it never goes back, whatever the caller says.
func (t *Track) clockAt(now Now) uint64 { return max(t.clock, min(now.Log, maxTime), 1) }

// change begins a call that changes the track: its clock is set.
func (t *Track) change(now Now, out *Events) change {
	t.clock = t.clockAt(now)
	return change{t, now, out}
}

// Revision of the config, for compare-and-set.
func (t *Track) Revision() uint64 { return t.revision }

// SkipRevisions replaces the config's revision by next of it, in a track that was read from a
// backup. A revision that was given out after the backup must not name another config.
func (t *Track) SkipRevisions(next func(uint64) uint64) { t.revision = next(t.revision) }

// Config as it is in force. It must not be changed.
func (t *Track) Config() protocol.TrackConfig { return t.config }

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
	// the one removed first is last: it goes, unless it has instances
	for i := len(removed) - 1; i >= 0 && len(removed) > maxRemoved; i-- {
		if len(removed[i].members) == 0 {
			removed = slices.Delete(removed, i, i+1)
		}
	}
	if len(removed) > maxRemoved {
		return ErrTooManyLocations
	}
	x := t.change(now, out)
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
			l.gate.giveUp()
		}
		if l.pos < 0 && len(l.members) == 0 {
			l.emptySince = clock
		}
		l.pos = i
		order = append(order, l)
	}
	if old.Source != c.Source {
		t.sourceError = "" // of a generator that is asked no more
	}
	for _, l := range removed {
		l.gate.giveUp()
		l.pos, l.promoted, l.reelectRequested, l.shareOnly = -1, 0, false, false
		l.paused, l.excluded, l.stable, l.sharedAt, l.blockedSince = running, false, 0, 0, 0
	}
	t.config, t.configBytes, t.locations = c, ConfigBytes(&c), append(order, removed...)
	t.revision++
	for _, l := range t.locations {
		l.recount(&t.plan)
	}
	x.emit(protocol.TrackEvent{Kind: protocol.TrackEventAdmin, Generation: t.revision, Text: "the config is changed"})
	x.updateStates()
	return nil
}

// Tick lets time alone act: states change, gates run out, hanging leaders are demoted. It never
// sets a target. It may be called at any time.
func (t *Track) Tick(now Now, out *Events) {
	at, ok := t.Next()
	if ok && t.clockAt(now) >= at {
		c := t.change(now, out)
		for _, l := range t.ordered() {
			c.tickGate(l)
		}
		c.updateStates()
	}
}

// Next returns the log time from which on Tick has work; ok is false if only a call brings some.
func (t *Track) Next() (at uint64, ok bool) {
	for _, l := range t.locations {
		_, until := t.state(l, t.clock)
		for _, x := range [2]uint64{until, t.gateDeadline(l)} {
			if x != 0 && (at == 0 || x < at) {
				at = x
			}
		}
	}
	return at, at != 0
}

// Append appends the whole state: the same bytes for the same state, whatever happened before.
// Instances come in order of their ids, behind everything else. The number of the format is the
// shard's.
func (t *Track) Append(b []byte) []byte { return appendRecord(t, b) }

// Digest is a hash of the record, FNV-1a: replicas that made the same calls have the same.
func (t *Track) Digest() uint64 {
	h := uint64(14695981039346656037)
	for _, c := range t.Append(nil) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}

// Check looks for states that no calls lead to. Decode refuses them, so that no bytes make a later
// call fail.
func (t *Track) Check() error { return check(t) }
