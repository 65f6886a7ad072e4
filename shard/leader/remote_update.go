package leader

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// sessionEnded handles the end of a session. It is final for any record and from any answer,
// because ids are never reused.
func (t *remoteTable) sessionEnded(id uint64, how protocol.Ending) {
	g := t.sessions[id]
	if g == nil || g.ended {
		return
	}
	g.unlist()
	g.subscription, g.request, g.ended = nil, 0, true
	if how != (protocol.Ending{}) {
		g.ending = &how
	}
	t.ended.push(g)
}

// update handles the attach epoch, description and detached state of a living session, and logs
// them if they are new here. Detached is logged only for sessions with an instance of a track:
// nothing else depends on it, and a change of the home's leader detaches all sessions.
//
// For an epoch the last update counts: a session may attach again under the epoch that it was
// detached with. The next comparison corrects updates that come out of order.
func (t *remoteTable) update(e *sessionStatus, st State) {
	g := t.sessions[e.session]
	if g == nil || g.ended || e.epoch < g.epoch {
		return
	}
	x := shard.RemoteUpdateBody{Session: e.session, Epoch: e.epoch, Description: e.description,
		Detached: e.state == stateDetached}
	have, ok := st.RemoteSession(e.session)
	if have.Tracks == 0 {
		x.Detached = false
	}
	if x.Epoch == g.epoch && x.Detached == g.detached {
		return
	}
	if ok && have.Epoch > x.Epoch {
		g.epoch, g.detached = have.Epoch, have.Detached
		return
	}
	same := have.Epoch == x.Epoch && have.Description == x.Description && have.Detached == x.Detached
	higher := x.Epoch > g.epoch
	g.epoch, g.detached = x.Epoch, x.Detached
	if ok && higher && same {
		return // pending updates have lower epochs and change nothing
	}
	if g.update != nil {
		*g.update = x
		return
	}
	g.update = new(shard.RemoteUpdateBody)
	*g.update = x
	t.updates = append(t.updates, g.update)
}

// flushEnded proposes the release of what ended sessions hold here, as fast as the limiter permits.
func (t *remoteTable) flushEnded(p *proposals) {
	for t.ended.n > 0 && p.limiter.tokens > 0 {
		var f proposal
		var body shard.RemoteEndedBody
		for t.ended.n > 0 && p.limiter.tokens > 0 && len(f.remotes) < MaxExpiries {
			g := t.ended.first
			t.ended.remove(g)
			p.limiter.tokens--
			f.remotes = append(f.remotes, g)
			x := shard.RemoteEnd{Session: g.session}
			if g.ending != nil {
				x.Ending = *g.ending
			}
			body.Sessions = append(body.Sessions, x)
		}
		id := p.propose(shard.CmdRemoteEnded, shard.AppendRemoteEnded(nil, body), f)
		for _, g := range f.remotes {
			g.releaseID = id
		}
	}
}

// releasesDone handles the outcome of the command that releases what these sessions hold.
func (t *remoteTable) releasesDone(command uint64, list []*remoteSession, applied bool) {
	for _, g := range list {
		if t.sessions[g.session] != g || g.releaseID != command {
			continue
		}
		if applied {
			// It holds nothing any more, or its home moved here, so its remote record is gone.
			delete(t.sessions, g.session)
			continue
		}
		g.releaseID = 0
		t.ended.push(g)
	}
}

// flushUpdates proposes what the homes say of living sessions.
func (t *remoteTable) flushUpdates(p *proposals) {
	n := min(len(t.updates), maxRemoteUpdates)
	for _, b := range t.updates[:n] {
		if g := t.sessions[b.Session]; g != nil && g.update == b {
			g.update = nil
		}
		p.propose(shard.CmdRemoteUpdate, shard.AppendRemoteUpdate(nil, *b), proposal{update: b})
	}
	t.updates = slices.Delete(t.updates, 0, n)
}

// updateDone handles the outcome of the command that logs this update.
func (t *remoteTable) updateDone(b *shard.RemoteUpdateBody, applied bool) {
	g := t.sessions[b.Session]
	switch {
	case !applied && (g == nil || g.update == nil && b.Epoch == g.epoch && b.Detached == g.detached):
		t.updates = append(t.updates, b)
		if g != nil {
			g.update = b
		}
	case applied && g != nil && b.Epoch > g.epoch:
		g.epoch, g.detached = b.Epoch, b.Detached
	}
}
