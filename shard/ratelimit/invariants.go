package ratelimit

import "fmt"

// check is [Leases.Check]: the counts are those of the leases, and grants stay within the limits.
func check(l *Leases) error {
	rates, bursts, given := make([]uint64, len(l.nodes)), make([]uint64, len(l.nodes)), make([]uint64, len(l.nodes))
	for _, m := range l.members {
		for _, h := range m.holdings {
			for _, g := range [2]*Lease{&h.held, &h.offered} {
				if g.there(l.now) && (g.Rate > h.countedRate || g.Burst > h.countedBurst) {
					return fmt.Errorf("ratelimit: session %d is counted at %s with less than it has", m.session, h.path)
				}
			}
			for i := h.node; i >= 0; i = l.nodes[i].parent {
				rates[i] += h.countedRate
				bursts[i] += h.countedBurst
			}
		}
	}
	for k := range l.grants.Len() {
		u := l.grants.At(k).Item
		for _, h := range u.holdings {
			for i := h.node; i >= 0; i = l.nodes[i].parent {
				given[i] += u.amount
			}
		}
	}
	for i := range l.nodes {
		n := &l.nodes[i]
		if rates[i] != n.countedRate || bursts[i] != n.countedBurst {
			return fmt.Errorf("ratelimit: %s counts rate %d and burst %d; its leases have %d and %d",
				n.path, n.countedRate, n.countedBurst, rates[i], bursts[i])
		}
		if given[i] != n.unused {
			return fmt.Errorf("ratelimit: %s counts units of %d; %d were given out", n.path, n.unused, given[i])
		}
		if n.bucket.level > n.ownBurst() {
			return fmt.Errorf("ratelimit: the leader's bucket at %s has %d thousandths, more than %d", n.path,
				n.bucket.level, n.ownBurst())
		}
	}
	return nil
}
