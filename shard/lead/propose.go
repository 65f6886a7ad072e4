package lead

import (
	"slices"

	"github.com/signalbox-dev/signalbox/shard"
)

// Commands are proposed until they are applied: what was never to be applied is queued again, after a tick. Each queue's entries are checked again when
// they leave it, because the log may have overtaken them.

// flight is a command whose outcome is not known.
type flight struct {
	sessions []*session // detach
	guests   []*guest   // gone
	seen     *shard.RemoteUpdateBody
}

// budget paces what ends sessions or releases what they hold: late is safe, a stalled log is not.
type budget struct{ tokens, at uint64 }

func (b *budget) refill(now uint64) {
	const perMs = ExpiriesPerSec / 1_000
	b.tokens = max(b.tokens, min(MaxExpiries, b.tokens+min(now-b.at, MaxExpiries)*perMs))
	b.at = now
}

func (l *Leader) propose(kind shard.CommandKind, body []byte, f flight) uint64 {
	l.note++
	l.flights[l.note] = f
	l.ready.Commands = append(l.ready.Commands, Command{shard.Command{Kind: kind, Body: body}, l.note})
	return l.note
}

func (l *Leader) flushCommands() {
	if l.backoff {
		return
	}
	l.budget.refill(l.clock.seen)
	if !l.clock.held {
		l.flushDetaches()
	}
	l.flushGone()
	l.flushSeen()
}

func (l *Leader) flushDetaches() {
	for len(l.detachQ) > 0 && l.budget.tokens > 0 {
		var f flight
		var body shard.DetachBody
		for len(l.detachQ) > 0 && l.budget.tokens > 0 && len(f.sessions) < MaxExpiries {
			s := l.detachQ[0]
			l.detachQ[0] = nil
			l.detachQ = l.detachQ[1:]
			if !s.isQueued() {
				continue // bound again, or ended
			}
			s.unqueue()
			l.budget.tokens--
			f.sessions = append(f.sessions, s)
			body.Sessions = append(body.Sessions, shard.DetachItem{Session: s.id, Epoch: s.epoch, LastContact: s.at})
		}
		if len(f.sessions) == 0 {
			return
		}
		note := l.propose(shard.CmdDetach, shard.AppendDetach(nil, body), f)
		for _, s := range f.sessions {
			s.note = note
		}
		l.stats.Detaches += uint64(len(f.sessions))
	}
}

func (l *Leader) flushGone() {
	for l.gone.n > 0 && l.budget.tokens > 0 {
		var f flight
		var body shard.RemoteEndedBody
		for l.gone.n > 0 && l.budget.tokens > 0 && len(f.guests) < MaxExpiries {
			g := l.gone.first
			l.gone.remove(g)
			l.budget.tokens--
			f.guests = append(f.guests, g)
			body.Sessions = append(body.Sessions, g.session)
		}
		note := l.propose(shard.CmdRemoteEnded, shard.AppendRemoteEnded(nil, body), f)
		for _, g := range f.guests {
			g.note = note
		}
		l.stats.Gone += uint64(len(f.guests))
	}
}

func (l *Leader) flushSeen() {
	n := min(len(l.seenQ), maxSeen)
	for _, b := range l.seenQ[:n] {
		if g := l.guests[b.Session]; g != nil && g.seen == b {
			g.seen = nil
		}
		l.propose(shard.CmdRemoteUpdate, shard.AppendRemoteUpdate(nil, *b), flight{seen: b})
	}
	l.seenQ = slices.Delete(l.seenQ, 0, n)
}

// Done reports the outcome of a command: applied, after the events of its batch were fed, or never to be applied.
func (l *Leader) Done(now, note uint64, applied bool) {
	f, ok := l.flights[note]
	if l.epoch == 0 || !ok {
		return
	}
	l.observe(now)
	delete(l.flights, note)
	if !applied {
		l.stats.Refused++
		l.backoff = true
	}
	for _, s := range f.sessions {
		if l.sessions.Get(s.id) != s || s.note != note {
			continue // the log decided it already
		}
		l.detachDecided(s, applied)
	}
	for _, g := range f.guests {
		if l.guests[g.session] != g || g.note != note {
			continue
		}
		if applied {
			// Nothing was held any more, or the session's home came to this shard: either way it is no guest.
			delete(l.guests, g.session)
			continue
		}
		if plantReleaseOnce {
			continue
		}
		g.note = 0
		l.gone.push(g)
	}
	if b := f.seen; b != nil {
		g := l.guests[b.Session]
		switch {
		case !applied && (g == nil || g.seen == nil && b.Epoch == g.known && b.Detached == g.detached):
			l.seenQ = append(l.seenQ, b)
			if g != nil {
				g.seen = b
			}
		case applied && g != nil && b.Epoch > g.known:
			g.known, g.detached = b.Epoch, b.Detached
		}
	}
}

func (l *Leader) detachDecided(s *session, applied bool) {
	switch {
	case applied:
		// The machine did not know it as attached under this epoch.
		s.note = 0
		if s.conn != nil {
			s.conn.doubts--
		}
		l.lost(s)
	case s.conn != nil:
		s.note = 0
		s.conn.doubts--
	default:
		s.note = 0
		l.queueDetach(s)
	}
}
