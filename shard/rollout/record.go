package rollout

import (
	"bytes"
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// recordVersion is the format of a track's record.
const recordVersion = 1

// appendConfig appends a config as commands and records carry it.
func appendConfig(b []byte, c *protocol.TrackConfig) []byte {
	b = append(b, byte(c.Source), byte(c.DelayFrom))
	b = varint.Append(b, uint64(len(c.Locations)))
	for i := range c.Locations {
		l := &c.Locations[i]
		b = varint.AppendBytes(b, l.Name)
		b = varint.Append(b, l.Delay, l.Bake, uint64(l.Share), l.ShareBake, uint64(len(l.Gates)))
		for _, g := range l.Gates {
			b = append(varint.AppendBytes(b, g.Name), byte(g.Kind))
			b = varint.Append(varint.AppendBytes(b, g.Spec), g.Timeout, g.Retry)
		}
	}
	b = varint.Append(b, uint64(len(c.ExplicitCodes)))
	for _, code := range c.ExplicitCodes {
		b = varint.AppendBytes(b, code)
	}
	b = varint.Append(b, c.ImplicitAfter, c.ImplicitAttempts, c.StallTimeout, c.SkipEmptyAfter, c.ReelectMinInterval, c.MinAdvanceInterval, c.Retention)
	return varint.AppendBool(b, c.AutoDemote, c.KeepRemoved)
}

func readConfig(r *varint.Reader) (c protocol.TrackConfig) {
	c.Source, c.DelayFrom = protocol.TrackSource(r.Byte()), protocol.DelayFrom(r.Byte())
	for range r.Count(protocol.MaxTrackLocations) {
		l := protocol.LocationConfig{Name: string(r.Bytes(protocol.MaxTrackName)), Delay: r.Uint(), Bake: r.Uint()}
		share := r.Uint()
		l.Share, l.ShareBake = uint8(min(share, 255)), r.Uint()
		for range r.Count(protocol.MaxTrackGates) {
			l.Gates = append(l.Gates, protocol.GateConfig{
				Name: string(r.Bytes(protocol.MaxTrackName)), Kind: protocol.GateKind(r.Byte()), Spec: string(r.Bytes(protocol.MaxTrackGateSpec)), Timeout: r.Uint(), Retry: r.Uint(),
			})
		}
		c.Locations = append(c.Locations, l)
	}
	for range r.Count(protocol.MaxTrackCodes) {
		c.ExplicitCodes = append(c.ExplicitCodes, string(r.Bytes(protocol.MaxTrackName)))
	}
	for _, p := range []*uint64{
		&c.ImplicitAfter, &c.ImplicitAttempts, &c.StallTimeout, &c.SkipEmptyAfter, &c.ReelectMinInterval, &c.MinAdvanceInterval, &c.Retention,
	} {
		*p = r.Uint()
	}
	c.AutoDemote, c.KeepRemoved = r.Bool(), r.Bool()
	return c
}

// Append appends the whole state: the same bytes for the same state, whatever happened before.
// Instances come in order of their ids, behind everything else.
func (t *Track) Append(b []byte) []byte {
	b = append(b, recordVersion)
	b = appendConfig(b, &t.config)
	b = varint.Append(b, t.revision, t.clock, t.last, t.incarnations)
	b = varint.AppendBytes(append(b, byte(t.paused)), t.sourceError)
	b = varint.Append(b, uint64(len(t.locations)))
	for _, l := range t.locations {
		b = l.append(b)
	}
	b = varint.Append(b, uint64(len(t.published)))
	for i := range t.published {
		p := &t.published[i]
		b = varint.AppendBool(varint.AppendBytes(varint.Append(b, p.version, p.at, p.wall), p.payload), p.withdrawn)
	}
	index := make(map[*location]uint64, len(t.locations))
	for i, l := range t.locations {
		index[l] = uint64(i)
	}
	b = varint.Append(b, uint64(len(t.instances)))
	for _, id := range slices.Sorted(maps.Keys(t.instances)) {
		p := t.instances[id]
		b = p.append(varint.Append(b, index[p.loc]))
	}
	return b
}

func (l *location) append(b []byte) []byte {
	b = varint.AppendBytes(b, l.name)
	b = varint.Append(b, l.target, l.stable, l.since, l.generation, l.floor, l.promoted, l.reelectAt, l.emptySince, l.sharedAt, l.blockedSince)
	b = append(b, byte(l.paused), byte(l.announced))
	b = varint.AppendBool(b, l.rollback, l.reelectRequested, l.excluded, l.shareOnly)
	b = append(varint.Append(b, l.gate.version, l.gate.index, l.gate.attempt, l.gate.at), byte(l.gate.state))
	b = varint.Append(b, uint64(len(l.history)))
	for i := range l.history {
		r := &l.history[i]
		b = append(varint.Append(b, r.version, r.at, r.converged, r.wall), byte(r.reason))
		b = varint.AppendBool(b, r.skip, r.payload)
	}
	return b
}

func (p *instance) append(b []byte) []byte {
	b = varint.Append(varint.AppendBytes(b, p.id), p.session, p.incarnation)
	b = varint.AppendBool(append(b, byte(p.role)), p.demoted, p.inShare)
	b = varint.Append(varint.AppendBytes(b, p.meta), p.registered, p.roleAt, p.sent, p.sentGen, p.sentAt, p.seq, p.reportGen, p.reportAt)
	r := &p.report
	b = varint.Append(b, r.Seq, r.Current, r.Target, r.Attempts)
	return varint.AppendBytes(varint.AppendBytes(b, r.Code), r.Message)
}

// Decode reads what Append wrote, and nothing else: any other bytes are ErrMalformed.
func Decode(b []byte) (*Track, error) {
	r := varint.Reader{Rest: b}
	if r.Byte() != recordVersion {
		return nil, ErrMalformed
	}
	config := readConfig(&r)
	if r.Failed {
		return nil, ErrMalformed
	}
	t := &Track{instances: map[string]*instance{}, sessions: map[uint64][]*instance{}}
	var err error
	if t.config, err = Normalize(config); err != nil {
		return nil, ErrMalformed
	}
	t.configBytes = ConfigBytes(&t.config)
	t.revision, t.clock, t.last, t.incarnations = r.Uint(), r.Uint(), r.Uint(), r.Uint()
	t.paused, t.sourceError = pauseMode(r.Byte()), string(r.Bytes(2*protocol.MaxTrackMessage))
	for i := range r.Count(protocol.MaxTrackLocations + maxRemoved) {
		l := readLocation(&r)
		if l.pos = i; i >= len(t.config.Locations) {
			l.pos = -1
		}
		t.locations = append(t.locations, l)
	}
	for range r.Count(MaxPublished) {
		p := published{version: r.Uint(), at: r.Uint(), wall: r.Uint()}
		p.payload, p.withdrawn = bytes.Clone(r.Bytes(protocol.MaxTrackPayload)), r.Bool()
		t.published = append(t.published, p)
		t.bytes += VersionBytes(len(p.payload))
	}
	for range r.Count(MaxInstances) {
		i := r.Uint()
		p := readInstance(&r)
		if r.Failed || i >= uint64(len(t.locations)) || t.instances[p.id] != nil {
			return nil, ErrMalformed
		}
		p.loc = t.locations[i]
		t.insert(p)
	}
	if r.Failed || len(r.Rest) > 0 || len(t.locations) < len(t.config.Locations) {
		return nil, ErrMalformed
	}
	if t.Check() != nil {
		return nil, ErrMalformed
	}
	for _, l := range t.locations {
		t.recount(l)
	}
	if !bytes.Equal(t.Append(nil), b) {
		return nil, ErrMalformed // numbers or an order that Append does not write
	}
	return t, nil
}

func readLocation(r *varint.Reader) *location {
	l := &location{name: string(r.Bytes(protocol.MaxTrackName))}
	for _, p := range []*uint64{
		&l.target, &l.stable, &l.since, &l.generation, &l.floor, &l.promoted, &l.reelectAt, &l.emptySince, &l.sharedAt, &l.blockedSince,
	} {
		*p = r.Uint()
	}
	l.paused, l.announced = pauseMode(r.Byte()), protocol.TrackState(r.Byte())
	l.rollback, l.reelectRequested, l.excluded, l.shareOnly = r.Bool(), r.Bool(), r.Bool(), r.Bool()
	l.gate = gate{version: r.Uint(), index: r.Uint(), attempt: r.Uint(), at: r.Uint(), state: gateState(r.Byte())}
	for range r.Count(MaxHistory + 1) {
		l.history = append(l.history, row{
			version: r.Uint(), at: r.Uint(), converged: r.Uint(), wall: r.Uint(), reason: protocol.TrackReason(r.Byte()), skip: r.Bool(), payload: r.Bool(),
		})
	}
	return l
}

func readInstance(r *varint.Reader) *instance {
	p := &instance{id: string(r.Bytes(protocol.MaxTrackInstance)), session: r.Uint(), incarnation: r.Uint()}
	p.role, p.demoted, p.inShare = protocol.TrackInstanceRole(r.Byte()), r.Bool(), r.Bool()
	p.meta = string(r.Bytes(protocol.MaxTrackMeta))
	for _, n := range []*uint64{&p.registered, &p.roleAt, &p.sent, &p.sentGen, &p.sentAt, &p.seq, &p.reportGen, &p.reportAt} {
		*n = r.Uint()
	}
	p.report = protocol.UpdateReport{Seq: r.Uint(), Current: r.Uint(), Target: r.Uint(), Attempts: r.Uint()}
	p.report.Code, p.report.Message = string(r.Bytes(protocol.MaxTrackName)), string(r.Bytes(protocol.MaxTrackMessage))
	return p
}

// Digest is a hash of the record, FNV-1a: replicas that made the same calls have the same.
func (t *Track) Digest() uint64 {
	h := uint64(14695981039346656037)
	for _, c := range t.Append(nil) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}
