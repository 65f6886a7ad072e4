package rollout

import (
	"bytes"
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

func configFields(c *protocol.TrackConfig, f *varint.Fields) {
	varint.Byte(f, &c.Source)
	varint.Byte(f, &c.DelayFrom)
	varint.List(f, &c.Locations, protocol.MaxTrackLocations, func(l *protocol.LocationConfig, f *varint.Fields) {
		share := uint64(l.Share)
		f.Text(&l.Name, protocol.MaxTrackName)
		f.Uint(&l.Delay, &l.Bake, &share, &l.ShareBake)
		if f.Reading() {
			l.Share = uint8(min(share, 255))
		}
		varint.List(f, &l.Gates, protocol.MaxTrackGates, func(g *protocol.GateConfig, f *varint.Fields) {
			f.Text(&g.Name, protocol.MaxTrackName)
			varint.Byte(f, &g.Kind)
			f.Text(&g.Spec, protocol.MaxTrackGateSpec)
			f.Uint(&g.Timeout, &g.Retry)
		})
	})
	varint.List(f, &c.ExplicitCodes, protocol.MaxTrackCodes,
		func(code *string, f *varint.Fields) { f.Text(code, protocol.MaxTrackName) })
	f.Uint(&c.ImplicitAfter, &c.ImplicitAttempts, &c.StallTimeout, &c.SkipEmptyAfter)
	f.Uint(&c.ReelectMinInterval, &c.MinAdvanceInterval, &c.Retention)
	f.Bool(&c.AutoDemote, &c.KeepRemoved)
}

// appendRecord is [Track.Append].
func appendRecord(t *Track, b []byte) []byte {
	index := make(map[*location]uint64, len(t.locations))
	for i, l := range t.locations {
		index[l] = uint64(i)
	}
	list := make([]placed, 0, len(t.instances.byID))
	for _, id := range slices.Sorted(maps.Keys(t.instances.byID)) {
		p := t.instances.byID[id]
		list = append(list, placed{p, index[p.loc]})
	}
	return varint.Encode(b, func(f *varint.Fields) { trackFields(t, f, &list) })
}

// placed is an instance with the place of its location among the track's.
type placed struct {
	*instance
	location uint64
}

func trackFields(t *Track, f *varint.Fields, instances *[]placed) {
	configFields(&t.config, f)
	f.Uint(&t.revision, &t.clock, &t.last, &t.instances.incarnations)
	varint.Byte(f, &t.paused)
	f.Text(&t.sourceError, 2*protocol.MaxTrackMessage)
	varint.List(f, &t.locations, protocol.MaxTrackLocations+maxRemoved, func(l **location, f *varint.Fields) {
		if f.Reading() {
			*l = new(location)
		}
		(*l).fields(f)
	})
	varint.List(f, (*[]published)(&t.published), MaxPublished, func(p *published, f *varint.Fields) {
		f.Uint(&p.version, &p.at, &p.wall)
		f.Bytes(&p.payload, protocol.MaxTrackPayload)
		f.Bool(&p.withdrawn)
	})
	varint.List(f, instances, MaxInstances, func(p *placed, f *varint.Fields) {
		if f.Reading() {
			p.instance = new(instance)
		}
		f.Uint(&p.location)
		p.instance.fields(f)
	})
}

func (l *location) fields(f *varint.Fields) {
	f.Text(&l.name, protocol.MaxTrackName)
	f.Uint(&l.target, &l.stable, &l.since, &l.generation, &l.floor, &l.promoted, &l.reelectAt, &l.emptySince)
	f.Uint(&l.sharedAt, &l.blockedSince)
	varint.Byte(f, &l.paused)
	varint.Byte(f, &l.announced)
	f.Bool(&l.rollback, &l.reelectRequested, &l.excluded, &l.shareOnly)
	f.Uint(&l.gate.version, &l.gate.index, &l.gate.attempt, &l.gate.at)
	varint.Byte(f, &l.gate.state)
	varint.List(f, &l.history, MaxHistory+1, func(r *row, f *varint.Fields) {
		f.Uint(&r.version, &r.at, &r.converged, &r.wall)
		varint.Byte(f, &r.reason)
		f.Bool(&r.skip, &r.payload)
	})
}

func (i *instance) fields(f *varint.Fields) {
	f.Text(&i.id, protocol.MaxTrackInstance)
	f.Uint(&i.session, &i.incarnation)
	varint.Byte(f, &i.role)
	f.Bool(&i.demoted, &i.inShare)
	f.Text(&i.meta, protocol.MaxTrackMeta)
	f.Uint(&i.registered, &i.roleAt, &i.sent, &i.sentGen, &i.sentAt, &i.seq, &i.reportGen, &i.reportAt)
	r := &i.report
	f.Uint(&r.Seq, &r.Current, &r.Target, &r.Attempts)
	f.Text(&r.Code, protocol.MaxTrackName)
	f.Text(&r.Message, protocol.MaxTrackMessage)
}

// Decode reads the output of Append, and nothing else: any other bytes are ErrMalformed.
func Decode(b []byte) (*Track, error) {
	r := varint.Reader{Rest: b}
	t := &Track{instances: newInstanceTable()}
	var instances []placed
	varint.Decode(&r, func(f *varint.Fields) { trackFields(t, f, &instances) })
	if !r.Done() {
		return nil, ErrMalformed
	}
	var err error
	if t.config, err = Normalize(t.config); err != nil {
		return nil, ErrMalformed
	}
	t.configBytes = ConfigBytes(&t.config)
	for i, l := range t.locations {
		if l.pos = i; i >= len(t.config.Locations) {
			l.pos = -1
		}
	}
	for i := range t.published {
		t.versionBytes += VersionBytes(len(t.published[i].payload))
	}
	for _, p := range instances {
		if p.location >= uint64(len(t.locations)) || t.instances.byID[p.id] != nil {
			return nil, ErrMalformed
		}
		p.loc = t.locations[p.location]
		t.instances.insert(p.instance)
	}
	if len(t.locations) < len(t.config.Locations) || t.Check() != nil {
		return nil, ErrMalformed
	}
	for _, l := range t.locations {
		l.recount(&t.plan)
	}
	if !bytes.Equal(t.Append(nil), b) {
		return nil, ErrMalformed // numbers or an order that Append does not write
	}
	return t, nil
}
