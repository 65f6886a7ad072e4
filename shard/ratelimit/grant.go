package ratelimit

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// grant is an amount that the leader gave out and that a client may not have used yet. Until it
// has, or can no more, it counts like the burst of a lease: else what comes in meanwhile could be used
// together with it.
//
// A new leadership that has finished learning need not know of grants: a session that has reported
// takes none of an earlier leadership any more, and those of all others have ended, as
// [protocol.MaxLimitWithin] is no more than the shortest lease.
type grant struct {
	member   *member
	holdings []*holding
	seq      uint64 // of the acquire
	amount   uint64
	place    int32 // in the heap of all, by the time until which they count
}

// Position implements container.Item.
func (u *grant) Position() *int32 { return &u.place }

// Before implements container.Item: the order of units that end together has no effect.
func (u *grant) Before(*grant) bool { return false }

// lend counts an amount that was taken from the leader's own buckets until the client has used it.
func (l *Leases) lend(m *member, holdings []*holding, seq, amount, within uint64) {
	u := &grant{member: m, holdings: holdings, seq: seq, amount: amount}
	m.grants = append(m.grants, u)
	l.grants.Push(u, l.now+min(within, protocol.MaxLimitWithin)+1) // a time of the log is up to 1 ms late
	for _, h := range holdings {
		l.countUnused(h, amount)
		h.unused += amount
	}
}

// used ends the count of a grant.
func (l *Leases) used(u *grant) {
	l.grants.Remove(u)
	u.member.grants = slices.DeleteFunc(u.member.grants, func(x *grant) bool { return x == u })
	for _, h := range u.holdings {
		h.unused -= u.amount
		l.countUnused(h, -u.amount) // modulo 2^64
	}
}

// usedUpTo ends the count of the units of all acquires of a member up to one: its client has used
// them, or never will.
func (l *Leases) usedUpTo(m *member, seq uint64) {
	for i := 0; i < len(m.grants); {
		if u := m.grants[i]; u.seq <= seq {
			l.used(u)
		} else {
			i++
		}
	}
}

// expireGrants ends the count of units that no client uses any more.
func (l *Leases) expireGrants() {
	for l.grants.Len() > 0 && l.grants.First().Key <= l.now {
		l.used(l.grants.First().Item)
	}
}

// forgetGrants ends the count of a holding's units: its client uses the leaf no more.
func (l *Leases) forgetGrants(h *holding) {
	for _, u := range h.member.grants {
		if i := slices.Index(u.holdings, h); i >= 0 {
			u.holdings = slices.Delete(slices.Clone(u.holdings), i, i+1)
			l.countUnused(h, -u.amount)
		}
	}
	h.unused = 0
}

// takeBack returns units that were given out and not used. A second time it finds none.
func (l *Leases) takeBack(m *member, seq uint64) {
	for _, u := range m.grants {
		if u.seq != seq {
			continue
		}
		l.used(u)
		for _, h := range u.holdings {
			h.granted -= min(h.granted, u.amount)
			for i := h.node; i >= 0; i = l.nodes[i].parent {
				n := &l.nodes[i]
				n.bucket.level = addUpTo(n.bucket.level, u.amount*1000, n.ownBurst())
			}
		}
		return
	}
}

// countUnused adds to the units that are counted at a holding's node and all above it.
func (l *Leases) countUnused(h *holding, more uint64) {
	for i := h.node; i >= 0; i = l.nodes[i].parent {
		n := &l.nodes[i]
		l.accrue(n)
		n.unused += more // modulo 2^64
		n.bucket.level = min(n.bucket.level, n.ownBurst())
	}
}
