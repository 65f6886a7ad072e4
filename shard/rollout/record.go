package rollout

import (
	"bytes"
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// recordVersion is the format of a track's record.
const recordVersion = 1

// appendConfig appends a config as commands and records carry it.
func appendConfig(b []byte, c *protocol.TrackConfig) []byte {
	b = append(b, byte(c.Source), byte(c.DelayFrom))
	b = num(b, uint64(len(c.Locations)))
	for i := range c.Locations {
		l := &c.Locations[i]
		b = str(b, l.Name)
		b = num(b, l.Delay, l.Bake, uint64(l.Share), l.ShareBake, uint64(len(l.Gates)))
		for _, g := range l.Gates {
			b = append(str(b, g.Name), byte(g.Kind))
			b = num(str(b, g.Spec), g.Timeout, g.Retry)
		}
	}
	b = num(b, uint64(len(c.ExplicitCodes)))
	for _, code := range c.ExplicitCodes {
		b = str(b, code)
	}
	b = num(b, c.ImplicitAfter, c.ImplicitAttempts, c.StallTimeout, c.SkipEmptyAfter, c.ReelectMinInterval, c.MinAdvanceInterval, c.Retention)
	return flag(flag(b, c.AutoDemote), c.KeepRemoved)
}

func (r *reader) config() (c protocol.TrackConfig) {
	c.Source, c.DelayFrom = protocol.TrackSource(r.byte()), protocol.DelayFrom(r.byte())
	for range r.count(protocol.MaxTrackLocations) {
		l := protocol.LocationConfig{Name: r.str(protocol.MaxTrackName), Delay: r.num(), Bake: r.num()}
		share := r.num()
		l.Share, l.ShareBake = uint8(min(share, 255)), r.num()
		for range r.count(protocol.MaxTrackGates) {
			l.Gates = append(l.Gates, protocol.GateConfig{
				Name: r.str(protocol.MaxTrackName), Kind: protocol.GateKind(r.byte()), Spec: r.str(protocol.MaxTrackGateSpec), Timeout: r.num(), Retry: r.num(),
			})
		}
		c.Locations = append(c.Locations, l)
	}
	for range r.count(protocol.MaxTrackCodes) {
		c.ExplicitCodes = append(c.ExplicitCodes, r.str(protocol.MaxTrackName))
	}
	for _, p := range []*uint64{
		&c.ImplicitAfter, &c.ImplicitAttempts, &c.StallTimeout, &c.SkipEmptyAfter, &c.ReelectMinInterval, &c.MinAdvanceInterval, &c.Retention,
	} {
		*p = r.num()
	}
	c.AutoDemote, c.KeepRemoved = r.flag(), r.flag()
	return c
}

// Append appends the whole state: the same bytes for the same state, whatever happened before.
// Instances come in order of their ids, behind everything else.
func (t *Track) Append(b []byte) []byte {
	b = append(b, recordVersion)
	b = appendConfig(b, &t.config)
	b = num(b, t.revision, t.clock, t.last, t.incarnations)
	b = str(append(b, byte(t.paused)), t.sourceError)
	b = num(b, uint64(len(t.locations)))
	for _, l := range t.locations {
		b = l.append(b)
	}
	b = num(b, uint64(len(t.published)))
	for i := range t.published {
		p := &t.published[i]
		b = flag(str(num(b, p.version, p.at, p.wall), p.payload), p.withdrawn)
	}
	index := make(map[*location]uint64, len(t.locations))
	for i, l := range t.locations {
		index[l] = uint64(i)
	}
	b = num(b, uint64(len(t.instances)))
	for _, id := range slices.Sorted(maps.Keys(t.instances)) {
		p := t.instances[id]
		b = p.append(num(b, index[p.loc]))
	}
	return b
}

func (l *location) append(b []byte) []byte {
	b = str(b, l.name)
	b = num(b, l.target, l.stable, l.since, l.generation, l.floor, l.promoted, l.reelectAt, l.emptySince, l.sharedAt, l.blockedSince)
	b = append(b, byte(l.paused), byte(l.announced))
	b = flag(flag(flag(flag(b, l.rollback), l.reelectRequested), l.excluded), l.shareOnly)
	b = append(num(b, l.gate.version, l.gate.index, l.gate.attempt, l.gate.at), byte(l.gate.state))
	b = num(b, uint64(len(l.history)))
	for i := range l.history {
		r := &l.history[i]
		b = append(num(b, r.version, r.at, r.converged, r.wall), byte(r.reason))
		b = flag(flag(b, r.skip), r.payload)
	}
	return b
}

func (p *instance) append(b []byte) []byte {
	b = num(str(b, p.id), p.session, p.incarnation)
	b = flag(flag(append(b, byte(p.role)), p.demoted), p.inShare)
	b = num(str(b, p.meta), p.registered, p.roleAt, p.sent, p.sentGen, p.sentAt, p.seq, p.reportGen, p.reportAt)
	r := &p.report
	b = num(b, r.Seq, r.Current, r.Target, r.Attempts)
	return str(str(b, r.Code), r.Message)
}

// Decode reads what Append wrote, and nothing else: any other bytes are ErrMalformed.
func Decode(b []byte) (*Track, error) {
	r := reader{b: b}
	if r.byte() != recordVersion {
		return nil, ErrMalformed
	}
	config := r.config()
	if r.bad {
		return nil, ErrMalformed
	}
	t := &Track{instances: map[string]*instance{}, sessions: map[uint64][]*instance{}}
	var err error
	if t.config, err = Normalize(config); err != nil {
		return nil, ErrMalformed
	}
	t.configBytes = ConfigBytes(&t.config)
	t.revision, t.clock, t.last, t.incarnations = r.num(), r.num(), r.num(), r.num()
	t.paused, t.sourceError = pauseMode(r.byte()), r.str(2*protocol.MaxTrackMessage)
	for i := range r.count(protocol.MaxTrackLocations + maxRemoved) {
		l := r.location()
		if l.pos = i; i >= len(t.config.Locations) {
			l.pos = -1
		}
		t.locations = append(t.locations, l)
	}
	for range r.count(MaxPublished) {
		p := published{version: r.num(), at: r.num(), wall: r.num()}
		p.payload, p.withdrawn = bytes.Clone(r.bytes(protocol.MaxTrackPayload)), r.flag()
		t.published = append(t.published, p)
		t.bytes += VersionBytes(len(p.payload))
	}
	for range r.count(MaxInstances) {
		i := r.num()
		p := r.instance()
		if r.bad || i >= uint64(len(t.locations)) || t.instances[p.id] != nil {
			return nil, ErrMalformed
		}
		p.loc = t.locations[i]
		t.insert(p)
	}
	if r.bad || len(r.b) > 0 || len(t.locations) < len(t.config.Locations) {
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

func (r *reader) location() *location {
	l := &location{name: r.str(protocol.MaxTrackName)}
	for _, p := range []*uint64{
		&l.target, &l.stable, &l.since, &l.generation, &l.floor, &l.promoted, &l.reelectAt, &l.emptySince, &l.sharedAt, &l.blockedSince,
	} {
		*p = r.num()
	}
	l.paused, l.announced = pauseMode(r.byte()), protocol.TrackState(r.byte())
	l.rollback, l.reelectRequested, l.excluded, l.shareOnly = r.flag(), r.flag(), r.flag(), r.flag()
	l.gate = gate{version: r.num(), index: r.num(), attempt: r.num(), at: r.num(), state: gateState(r.byte())}
	for range r.count(MaxHistory + 1) {
		l.history = append(l.history, row{
			version: r.num(), at: r.num(), converged: r.num(), wall: r.num(), reason: protocol.TrackReason(r.byte()), skip: r.flag(), payload: r.flag(),
		})
	}
	return l
}

func (r *reader) instance() *instance {
	p := &instance{id: r.str(protocol.MaxTrackInstance), session: r.num(), incarnation: r.num()}
	p.role, p.demoted, p.inShare = protocol.TrackInstanceRole(r.byte()), r.flag(), r.flag()
	p.meta = r.str(protocol.MaxTrackMeta)
	for _, n := range []*uint64{&p.registered, &p.roleAt, &p.sent, &p.sentGen, &p.sentAt, &p.seq, &p.reportGen, &p.reportAt} {
		*n = r.num()
	}
	p.report = protocol.UpdateReport{Seq: r.num(), Current: r.num(), Target: r.num(), Attempts: r.num()}
	p.report.Code, p.report.Message = r.str(protocol.MaxTrackName), r.str(protocol.MaxTrackMessage)
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
