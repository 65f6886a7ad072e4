package shard

import (
	"bytes"

	"github.com/signalbox-dev/signalbox/shard/rollout"
)

// track is a staged rollout as a record of this shard; what it does is package rollout's.
//
// Invariant: it is among the tracks of exactly the parties whose sessions have instances in it.
// Invariant: between Applies its timer is armed one before what state.Next says, if that says anything.
type track struct {
	bucket   *bucket
	node     *node
	name     []byte // never changed in place
	state    *rollout.Track
	revision uint64 // log index of the last call that may have changed it
	timer    timer  // in the bucket's time
	mark     uint32
	weighs   uint64 // as counted by its node; 0 while it is not there
}

func trackLess(a, b *track) bool { return bytes.Compare(a.name, b.name) < 0 }

func (x *track) clock() *timer { return &x.timer }

// deadline says the node; tracks of one node and bucket that are due together fire in order of name.
func (x *track) deadline() (deadlineKind, uint64, uint32) {
	return deadlineTrack, x.node.id, x.bucket.number
}

// track looks one up.
func (m *Machine) track(b *bucket, node uint64, name []byte) *track {
	m.run.key = appendSemaphoreKey(m.run.key[:0], node, name)
	return b.tracks[string(m.run.key)]
}

func (m *Machine) linkTrack(x *track) {
	if x.bucket.tracks == nil {
		x.bucket.tracks = make(map[string]*track)
	}
	m.run.key = appendSemaphoreKey(m.run.key[:0], x.node.id, x.name)
	x.bucket.tracks[string(m.run.key)] = x
	x.node.tracks.insert(x, trackLess)
	x.node.reweigh(&x.weighs, x.weight())
}

// unlinkTrack takes a track out, with what its sessions know of it.
func (m *Machine) unlinkTrack(x *track) {
	m.touchTrack(x)
	m.cancel(x)
	for _, id := range x.state.Sessions() {
		m.leaveTrack(m.parties[id], x)
	}
	m.run.key = appendSemaphoreKey(m.run.key[:0], x.node.id, x.name)
	delete(x.bucket.tracks, string(m.run.key))
	x.node.tracks.remove(x, trackLess)
	x.node.reweigh(&x.weighs, 0)
}

// now is the time of a call: the bucket's, which moves with it and stands still while it is frozen.
func (m *Machine) now(b *bucket) rollout.Now {
	return rollout.Now{Log: m.time(b), Wall: m.run.wall}
}

// callTrack has a track ready to be called: set aside for a snapshot.
func (m *Machine) callTrack(x *track) rollout.Now {
	m.touchTrack(x)
	x.revision = m.applied
	return m.now(x.bucket)
}

// settleTrack follows a call: changes for watches go out, and the timer is armed.
func (m *Machine) settleTrack(x *track) {
	out := &m.run.track
	if !x.node.dropped {
		for _, c := range out.List {
			m.run.out.Tracks = append(m.run.out.Tracks, TrackChange{Node: x.node.id, Bucket: x.bucket.number, Name: x.name, Change: c})
		}
	}
	out.Reset()
	x.node.reweigh(&x.weighs, x.weight())
	m.armTrack(x)
}

// armTrack arms the timer: it is due when time is above it, and a track has something to do when time has reached Next.
func (m *Machine) armTrack(x *track) {
	at, ok := x.state.Next()
	if !ok {
		m.cancel(x)
		return
	}
	m.arm(x, max(at, 1)-1)
}

// tickTrack lets time act on a track whose timer is due.
func (m *Machine) tickTrack(x *track) {
	x.state.Tick(m.callTrack(x), &m.run.track)
	m.settleTrack(x)
}

// follow has a session know of the track exactly while it has an instance there.
func (m *Machine) follow(session uint64, x *track) {
	p := m.parties[session]
	if p == nil {
		return
	}
	if x.state.HasSession(session) {
		m.joinTrack(p, x)
	} else {
		m.leaveTrack(p, x)
	}
}

// joinTrack and leaveTrack tell the leader about a guest's first and last thing here.
func (m *Machine) joinTrack(p *party, x *track) {
	if p.addTrack(x) && p.things() == 1 && !p.gone && !m.atHome(p) {
		m.becameHeld(p)
	}
}

func (m *Machine) leaveTrack(p *party, x *track) {
	if p != nil && p.removeTrack(x) && !p.busy() && !p.gone && !m.atHome(p) {
		m.touchParty(p)
		m.becameIdle(p)
	}
}

// desert ends a gone party's instances, track by track in order of name, as far as the work of this Apply goes; done: no other may be ended.
func (m *Machine) desert(p *party) (done bool) {
	for i := 0; i < len(p.tracks()); {
		x := p.tracks()[i]
		if x.bucket.state != bucketActive && !x.node.dropped {
			i++
			continue
		}
		if m.run.released <= 0 {
			return false
		}
		m.spend(1)
		x.state.SessionEnded(m.callTrack(x), p.id, &m.run.track)
		m.settleTrack(x)
		if p.removeTrack(x) && !p.busy() && !m.atHome(p) {
			m.touchParty(p)
			m.becameIdle(p)
		}
	}
	return true
}

// dropTracks removes those of a dropped node, in silence.
func (m *Machine) dropTracks(n *node) {
	for x := n.tracks.first(); x != nil && m.run.released > 0; x = n.tracks.first() {
		m.run.released--
		m.unlinkTrack(x)
	}
}
