package shard

import (
	"bytes"

	"github.com/signalbox-dev/signalbox/shard/rollout"
)

// trackRecord is a staged rollout as a record of this shard; what it does is package rollout's.
//
// Invariant: it is among the tracks of exactly the session records whose sessions have instances in
// it. Invariant: between Applies its timer is armed one before what state.Next says, if that says
// anything.
type trackRecord struct {
	bucket       *bucket
	node         *node
	name         []byte // never changed in place
	state        *rollout.Track
	revision     uint64 // log index of the last call that may have changed it
	timer        timer  // in the bucket's time
	snapMark     uint32
	chargedBytes uint64 // as counted by its node; 0 while it is not there
}

func trackLess(a, b *trackRecord) bool { return bytes.Compare(a.name, b.name) < 0 }

func (x *trackRecord) timerRef() *timer { return &x.timer }

// deadlineKey says the node; tracks of one node and bucket that are due together fire in order of
// name.
func (x *trackRecord) deadlineKey() (deadlineKind, uint64, uint32) {
	return deadlineTrack, x.node.id, x.bucket.number
}

// track looks one up.
func (m *Machine) track(b *bucket, node uint64, name []byte) *trackRecord {
	m.batch.key = appendSemaphoreKey(m.batch.key[:0], node, name)
	return b.tracks[string(m.batch.key)]
}

func (m *Machine) linkTrack(x *trackRecord) {
	if x.bucket.tracks == nil {
		x.bucket.tracks = make(map[string]*trackRecord)
	}
	m.batch.key = appendSemaphoreKey(m.batch.key[:0], x.node.id, x.name)
	x.bucket.tracks[string(m.batch.key)] = x
	x.node.tracks.insert(x, trackLess)
	x.node.chargeObject(&x.chargedBytes, x.quotaBytes())
}

// unlinkTrack takes a track out, with what its sessions know of it.
func (m *Machine) unlinkTrack(x *trackRecord) {
	m.touchTrack(x)
	m.cancel(x)
	for _, id := range x.state.Sessions() {
		m.removeTrackSession(m.sessions[id], x)
	}
	m.batch.key = appendSemaphoreKey(m.batch.key[:0], x.node.id, x.name)
	delete(x.bucket.tracks, string(m.batch.key))
	x.node.tracks.remove(x, trackLess)
	x.node.chargeObject(&x.chargedBytes, 0)
}

// trackNow is the time of a call: the bucket's, which moves with it and stands still while it is
// frozen.
func (m *Machine) trackNow(b *bucket) rollout.Now {
	return rollout.Now{Log: m.bucketTime(b), Wall: m.batch.wall}
}

// callTrack prepares a call: it saves the track for a snapshot.
func (m *Machine) callTrack(x *trackRecord) rollout.Now {
	m.touchTrack(x)
	x.revision = m.applied
	return m.trackNow(x.bucket)
}

// finishTrackCall follows a call: it emits changes for watches and arms the timer.
func (m *Machine) finishTrackCall(x *trackRecord) {
	out := &m.batch.track
	if !x.node.dropped {
		for _, c := range out.List {
			m.batch.out.TrackChanges = append(m.batch.out.TrackChanges, TrackChange{Node: x.node.id, Bucket: x.bucket.number, Name: x.name, TrackEvent: c})
		}
	}
	out.Reset()
	x.node.chargeObject(&x.chargedBytes, x.quotaBytes())
	m.armTrack(x)
}

// armTrack arms the timer: it is due when time is above it, and a track has something to do when
// time has reached Next.
func (m *Machine) armTrack(x *trackRecord) {
	at, ok := x.state.Next()
	if !ok {
		m.cancel(x)
		return
	}
	m.arm(x, max(at, 1)-1)
}

// tickTrack lets time act on a track whose timer is due.
func (m *Machine) tickTrack(x *trackRecord) {
	x.state.Tick(m.callTrack(x), &m.batch.track)
	m.finishTrackCall(x)
}

// syncTrackSession keeps the track among the session's holdings exactly while the session has an
// instance there.
func (m *Machine) syncTrackSession(session uint64, x *trackRecord) {
	p := m.sessions[session]
	if p == nil {
		return
	}
	if x.state.HasSession(session) {
		m.addTrackSession(p, x)
	} else {
		m.removeTrackSession(p, x)
	}
}

// addTrackSession and removeTrackSession report a remote session's first and last reference to the
// leader.
func (m *Machine) addTrackSession(p *sessionRecord, x *trackRecord) {
	if p.addTrack(x) && p.references() == 1 && !p.ended && !m.atHome(p) {
		m.remoteHeld(p)
	}
}

func (m *Machine) removeTrackSession(p *sessionRecord, x *trackRecord) {
	if p != nil && p.removeTrack(x) && !p.hasReferences() && !p.ended && !m.atHome(p) {
		m.touchSessionRecord(p)
		m.remoteIdle(p)
	}
}

// endInstances ends an ended session's instances, track by track in order of name, as far as the
// work of this Apply goes; done: no other can be ended.
func (m *Machine) endInstances(p *sessionRecord) (done bool) {
	for i := 0; i < len(p.tracks()); {
		x := p.tracks()[i]
		if x.bucket.state != bucketActive && !x.node.dropped {
			i++
			continue
		}
		if m.batch.releaseBudget <= 0 {
			return false
		}
		m.spendWork(1)
		x.state.SessionEnded(m.callTrack(x), p.id, &m.batch.track)
		m.finishTrackCall(x)
		if p.removeTrack(x) && !p.hasReferences() && !m.atHome(p) {
			m.touchSessionRecord(p)
			m.remoteIdle(p)
		}
	}
	return true
}

// dropTracks removes those of a dropped node, in silence.
func (m *Machine) dropTracks(n *node) {
	for x := n.tracks.first(); x != nil && m.batch.releaseBudget > 0; x = n.tracks.first() {
		m.batch.releaseBudget--
		m.unlinkTrack(x)
	}
}
