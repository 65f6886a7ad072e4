package leader

import (
	"slices"

	"github.com/signalbox-dev/signalbox/shard"
)

// Commands are proposed until they are applied. A command that will never be applied is queued
// again after a tick. Entries of a queue are checked again when they leave it, because the log may
// have overtaken them.

// proposal is a command whose outcome is not known.
type proposal struct {
	sessions []*session       // of a detach
	remotes  []*remoteSession // of a CmdRemoteEnded
	update   *shard.RemoteUpdateBody
}

// rateLimiter paces commands that end sessions or release what they hold: they may be late, but
// must not stall the log.
type rateLimiter struct{ tokens, at uint64 }

func (b *rateLimiter) refill(now uint64) {
	const perMs = ExpiriesPerSec / 1_000
	b.tokens = max(b.tokens, min(MaxExpiries, b.tokens+min(now-b.at, MaxExpiries)*perMs))
	b.at = now
}

func (l *Leader) propose(kind shard.CommandKind, body []byte, f proposal) uint64 {
	l.lastID++
	l.inFlight[l.lastID] = f
	l.ready.Commands = append(l.ready.Commands, Command{shard.Command{Kind: kind, Body: body}, l.lastID})
	return l.lastID
}

func (l *Leader) flushCommands() {
	if l.backoff {
		return
	}
	l.limiter.refill(l.clock.seen)
	if !l.clock.paused {
		l.flushDetaches()
	}
	l.flushRemotesEnded()
	l.flushRemoteUpdates()
}

func (l *Leader) flushDetaches() {
	for len(l.detachQueue) > 0 && l.limiter.tokens > 0 {
		var f proposal
		var body shard.DetachBody
		for len(l.detachQueue) > 0 && l.limiter.tokens > 0 && len(f.sessions) < MaxExpiries {
			s := l.detachQueue[0]
			l.detachQueue[0] = nil
			l.detachQueue = l.detachQueue[1:]
			if !s.detachQueued() {
				continue // attached again, or ended
			}
			s.unqueue()
			l.limiter.tokens--
			f.sessions = append(f.sessions, s)
			body.Sessions = append(body.Sessions, shard.DetachItem{Session: s.id, Epoch: s.epoch, LastContact: s.at})
		}
		if len(f.sessions) == 0 {
			return
		}
		id := l.propose(shard.CmdDetach, shard.AppendDetach(nil, body), f)
		for _, s := range f.sessions {
			s.detachID = id
		}
		l.stats.Detaches += uint64(len(f.sessions))
	}
}

func (l *Leader) flushRemotesEnded() {
	for l.endedRemotes.n > 0 && l.limiter.tokens > 0 {
		var f proposal
		var body shard.RemoteEndedBody
		for l.endedRemotes.n > 0 && l.limiter.tokens > 0 && len(f.remotes) < MaxExpiries {
			g := l.endedRemotes.first
			l.endedRemotes.remove(g)
			l.limiter.tokens--
			f.remotes = append(f.remotes, g)
			body.Sessions = append(body.Sessions, g.session)
		}
		id := l.propose(shard.CmdRemoteEnded, shard.AppendRemoteEnded(nil, body), f)
		for _, g := range f.remotes {
			g.releaseID = id
		}
		l.stats.RemotesEnded += uint64(len(f.remotes))
	}
}

func (l *Leader) flushRemoteUpdates() {
	n := min(len(l.remoteUpdates), maxRemoteUpdates)
	for _, b := range l.remoteUpdates[:n] {
		if g := l.remotes[b.Session]; g != nil && g.update == b {
			g.update = nil
		}
		l.propose(shard.CmdRemoteUpdate, shard.AppendRemoteUpdate(nil, *b), proposal{update: b})
	}
	l.remoteUpdates = slices.Delete(l.remoteUpdates, 0, n)
}

// Done reports the outcome of a command: applied, after the events of its batch were fed, or never
// to be applied.
func (l *Leader) Done(now, id uint64, applied bool) {
	f, ok := l.inFlight[id]
	if l.epoch == 0 || !ok {
		return
	}
	l.observe(now)
	delete(l.inFlight, id)
	if !applied {
		l.stats.Retried++
		l.backoff = true
	}
	for _, s := range f.sessions {
		if l.sessions.Get(s.id) != s || s.detachID != id {
			continue // the log has decided it already
		}
		l.detachDecided(s, applied)
	}
	for _, g := range f.remotes {
		if l.remotes[g.session] != g || g.releaseID != id {
			continue
		}
		if applied {
			// It held nothing any more, or its home moved here: it is no remote session.
			delete(l.remotes, g.session)
			continue
		}
		g.releaseID = 0
		l.endedRemotes.push(g)
	}
	if b := f.update; b != nil {
		g := l.remotes[b.Session]
		switch {
		case !applied && (g == nil || g.update == nil && b.Epoch == g.epoch && b.Detached == g.detached):
			l.remoteUpdates = append(l.remoteUpdates, b)
			if g != nil {
				g.update = b
			}
		case applied && g != nil && b.Epoch > g.epoch:
			g.epoch, g.detached = b.Epoch, b.Detached
		}
	}
}

func (l *Leader) detachDecided(s *session, applied bool) {
	switch {
	case applied:
		// The machine did not have it attached under this epoch.
		s.detachID = 0
		if s.conn != nil {
			s.conn.undecided--
		}
		l.forgetDetached(s)
	case s.conn != nil:
		s.detachID = 0
		s.conn.undecided--
	default:
		s.detachID = 0
		l.queueDetach(s)
	}
}
