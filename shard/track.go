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

func (x *hostedObject) track() *rollout.Track { return x.state.(trackState).Track }

func (s trackState) sessions(list []uint64) []uint64 { return append(list, s.Sessions()...) }

func (s trackState) part(session uint64) (label string, count int) { return s.InstancesOf(session) }

func (s trackState) size() int { return s.NumInstances() }

// skipAhead does nothing: an incarnation counts only together with the session that registered it.
func (s trackState) skipAhead(uint64) {}

func (s trackState) wake(m *Machine, x *hostedObject) {
	s.Tick(m.callTrack(x), &m.batch.track)
	s.requestDone(m, x)
}

func (s trackState) sessionEnded(m *Machine, x *hostedObject, session uint64) {
	m.spendWork(1)
	s.SessionEnded(m.callTrack(x), session, &m.batch.track)
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
	m.scheduleObject(x)
}

// trackNow is the time of a call: the bucket's, which moves with it and stands still while it is
// frozen.
func (m *Machine) trackNow(b *bucket) rollout.Now {
	return rollout.Now{Log: m.bucketTime(b), Wall: m.batch.wall}
}

// callTrack prepares a call: it saves the track for a snapshot.
func (m *Machine) callTrack(x *hostedObject) rollout.Now {
	m.touch(x)
	x.revision = m.applied
	return m.trackNow(x.bucket)
}

// syncTrackSession keeps the track among the session's holdings exactly while the session has an
// instance there.
func (m *Machine) syncTrackSession(session uint64, x *hostedObject) {
	p := m.sessions.get(session)
	switch {
	case p == nil:
	case x.track().HasSession(session):
		m.addHolding(p, x)
	case m.removeHolding(p, x) && !p.ended:
		m.remoteIdle(p)
	}
}
