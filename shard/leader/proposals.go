package leader

import "github.com/signalbox-dev/signalbox/shard"

// proposals are the commands whose outcome is not known, and the pace of new ones.
//
// Commands are proposed until they are applied. A command that will never be applied is queued
// again after a tick. Entries of a queue are checked again when they leave it, because the log may
// have overtaken them.
type proposals struct {
	*leadership
	lastID   uint64 // of a command; numbers continue across leaderships
	inFlight map[uint64]proposal
	limiter  rateLimiter
	backoff  bool // a command was not applied: propose again after the next tick
}

type proposal struct {
	sessions []*session       // of a detach
	remotes  []*remoteSession // of a CmdRemoteEnded
	update   *shard.RemoteUpdateBody
	stood    bool // a detach says for how long the leader stood still
}

func newProposals(s *leadership, lastID, now uint64) proposals {
	return proposals{leadership: s, lastID: lastID, inFlight: make(map[uint64]proposal),
		limiter: rateLimiter{MaxExpiries, now}}
}

// refill lets time add to what may be proposed. It is false while nothing may be.
func (p *proposals) refill() bool {
	if p.backoff {
		return false
	}
	p.limiter.refill(p.clock.seen)
	return true
}

func (p *proposals) propose(kind shard.CommandKind, body []byte, f proposal) uint64 {
	p.lastID++
	p.inFlight[p.lastID] = f
	p.ready.Commands = append(p.ready.Commands, Command{shard.Command{Kind: kind, Body: body}, p.lastID})
	return p.lastID
}

// done returns what a command was about whose outcome is known now.
func (p *proposals) done(id uint64, applied bool) (f proposal, ok bool) {
	if f, ok = p.inFlight[id]; !ok {
		return f, false
	}
	delete(p.inFlight, id)
	if !applied {
		p.backoff = true
	}
	return f, true
}

// rateLimiter paces commands that end sessions or release what they hold: they may be late, but
// must not stall the log.
type rateLimiter struct{ tokens, at uint64 }

func (r *rateLimiter) refill(now uint64) {
	const perMs = ExpiriesPerSec / 1_000
	r.tokens = max(r.tokens, min(MaxExpiries, r.tokens+min(now-r.at, MaxExpiries)*perMs))
	r.at = now
}
