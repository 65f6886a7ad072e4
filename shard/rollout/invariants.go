package rollout

import (
	"errors"

	"github.com/signalbox-dev/signalbox/protocol"
)

// check is [Track.Check].
func check(t *Track) error {
	if t.revision == 0 || t.clock == 0 || t.clock > maxTime || t.last > protocol.MaxTrackVersion ||
		t.paused > pausedHard || !validText(t.sourceError, 2*protocol.MaxTrackMessage) {
		return errors.New("rollout: a field of the track is out of range")
	}
	if len(t.locations) < len(t.config.Locations) {
		return errors.New("rollout: locations of the config are missing")
	}
	seen := map[string]bool{}
	for i, l := range t.locations {
		if seen[l.name] || !validName(l.name, protocol.MaxTrackName) ||
			i < len(t.config.Locations) && (l.name != t.config.Locations[i].Name || l.pos != i) {
			return errors.New("rollout: locations are not those of the config")
		}
		seen[l.name] = true
		if err := checkLocation(t, l); err != nil {
			return err
		}
	}
	last, at := uint64(0), uint64(0)
	for i := range t.published {
		p := &t.published[i]
		if p.version <= last || p.version > t.last || p.at < at || p.at > t.clock ||
			len(p.payload) > protocol.MaxTrackPayload {
			return errors.New("rollout: published versions are out of order")
		}
		last, at = p.version, p.at
	}
	versionBytes, bytes := uint64(0), uint64(0)
	for i := range t.published {
		versionBytes += VersionBytes(len(t.published[i].payload))
	}
	for _, p := range t.instances.byID {
		bytes += InstanceBytes(len(p.id), len(p.meta))
	}
	if bytes != t.instances.bytes || versionBytes != t.versionBytes || t.configBytes != ConfigBytes(&t.config) {
		return errors.New("rollout: bytes are counted wrong")
	}
	incarnations := map[uint64]bool{}
	for id, p := range t.instances.byID {
		if id != p.id || !validName(id, protocol.MaxTrackInstance) || !validText(p.meta, protocol.MaxTrackMeta) ||
			p.session == 0 || p.role < protocol.InstanceFollower || p.role > protocol.InstanceLeader ||
			p.incarnation > t.instances.incarnations || p.incarnation == 0 || incarnations[p.incarnation] ||
			p.report.Validate() != nil || p.report.Seq != p.seq ||
			max(p.registered, p.roleAt, p.sentAt, p.reportAt) > t.clock || p.sent > t.last {
			return errors.New("rollout: an instance is out of range")
		}
		incarnations[p.incarnation] = true
		if list := t.instances.sessions[p.session]; p.atSession >= len(list) || list[p.atSession] != p {
			return errors.New("rollout: an instance is not among those of its session")
		}
	}
	return nil
}

func checkLocation(t *Track, l *location) error {
	if max(l.since, l.reelectAt, l.emptySince, l.sharedAt, l.blockedSince, l.gate.at) > t.clock ||
		l.paused > pausedHard || l.announced > protocol.StateRemoved {
		return errors.New("rollout: a field of a location is out of range")
	}
	if max(l.target, l.stable, l.floor, l.promoted, l.gate.version) > t.last {
		return errors.New("rollout: a location has a version that never was")
	}
	if l.shareOnly != (l.stable != 0) || (l.shareOnly || l.gate.version != 0 || l.promoted != 0) && l.pos < 0 ||
		(l.target == 0) != (l.generation == 0) {
		return errors.New("rollout: a location contradicts itself")
	}
	g := &l.gate
	if g.state > gatePassed || g.version == 0 && *g != (gate{attempt: g.attempt}) ||
		g.version != 0 && g.state != gatePassed && g.index >= uint64(len(t.locationConfig(l).Gates)) {
		return errors.New("rollout: a gate is out of range")
	}
	if (l.target != 0 || len(l.history) > 0) && l.row(l.target) == nil {
		return errors.New("rollout: a target is not in its location's history") // I2
	}
	if len(l.history) > MaxHistory {
		return errors.New("rollout: a history is too long")
	}
	at, version := uint64(0), uint64(0)
	for i := range l.history {
		r := &l.history[i]
		if r.at < at || r.at > t.clock || r.converged > t.clock || r.version == 0 || r.version > t.last ||
			r.reason < protocol.ReasonInitial || r.reason > protocol.ReasonRollback {
			return errors.New("rollout: a history is out of range")
		}
		if r.version <= version && r.reason != protocol.ReasonRollback {
			return errors.New("rollout: a history is out of order") // I5
		}
		at, version = r.at, r.version
	}
	for i, p := range l.members {
		if p.loc != l || p.atLocation != i {
			return errors.New("rollout: an instance is in another location's list, or another place")
		}
	}
	return nil
}
