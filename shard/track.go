package shard

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/rollout"
)

// trackState is a rollout's track as a hosted object. The sessions of its instances take part in
// it.
type trackState struct{ *rollout.Track }

func decodeTrack(record []byte) (hostedState, error) {
	t, err := rollout.Decode(record)
	return trackState{t}, err
}

func validTrackName(name []byte) bool { return len(name) > 0 && len(name) <= protocol.MaxNameLen }

func (h *hostedObject) track() *rollout.Track { return h.state.(trackState).Track }

func (s trackState) sessions(list []uint64) []uint64 { return append(list, s.Sessions()...) }

func (s trackState) part(session uint64) (label string, count int) { return s.InstancesOf(session) }

func (s trackState) size() int { return s.NumInstances() }

func (s trackState) highest() uint64 { return s.Revision() }

// bumpCounters leaves the incarnations: one counts only together with the session that registered
// it.
func (s trackState) bumpCounters(next func(uint64) uint64) { s.SkipRevisions(next) }

func (s trackState) wake(m *Machine, x *hostedObject) {
	s.Tick(x.callTrack(m), &m.batch.track)
	s.requestDone(m, x)
}

func (s trackState) sessionEnded(m *Machine, x *hostedObject, session uint64) {
	m.spendWork(1)
	s.SessionEnded(x.callTrack(m), session, &m.batch.track)
	s.requestDone(m, x)
}

// requestDone follows every call: it emits changes for watches and schedules the timer.
func (s trackState) requestDone(m *Machine, x *hostedObject) {
	out := &m.batch.track
	if !x.node.dropped {
		for _, c := range out.List {
			m.batch.out.TrackChanges = append(m.batch.out.TrackChanges, TrackChange{
				Node: x.node.id, Bucket: x.bucket.number, Name: x.name, TrackEvent: c,
			})
		}
	}
	out.Reset()
	x.charge(x.quotaBytes())
	x.schedule(m)
}

// trackNow is the time of a call: the bucket's, which moves with it and stands still while it is
// frozen.
func trackNow(m *Machine, b *bucket) rollout.Now {
	return rollout.Now{Log: m.bucketTime(b), Wall: m.wall}
}

// callTrack prepares a call: it saves the track for a snapshot.
func (h *hostedObject) callTrack(m *Machine) rollout.Now {
	m.touch(h)
	h.revision = m.applied
	return trackNow(m, h.bucket)
}

// syncSession keeps the track among the session's holdings exactly while the session has an
// instance there.
func (h *hostedObject) syncSession(m *Machine, session uint64) {
	p := m.sessions.get(session)
	switch {
	case p == nil:
	case h.track().HasSession(session):
		p.addHolding(m, h)
	case p.removeHolding(m, h) && !p.ended:
		p.remoteIdle(m)
	}
}
