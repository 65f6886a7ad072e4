package leader

import (
	"cmp"
	"container/heap"
	"slices"
)

// checkAt checks a connection at this log time.
func (v *liveness) checkAt(c *conn, at uint64) {
	c.nextCheck = at
	heap.Push(&v.checks, check{at, c.id})
}

// scheduleCheck checks the connection no later than its shortest limit demands.
func (v *liveness) scheduleCheck(c *conn) {
	if at := c.last + c.shortest + 1; at < c.nextCheck {
		v.checkAt(c, at)
	}
}

// checkSilence checks the connections whose time has come.
func (v *liveness) checkSilence(heard Heard) {
	now := v.clock.now()
	for len(v.checks) > 0 && v.checks[0].at <= now {
		k := heap.Pop(&v.checks).(check)
		c := v.conns[k.conn]
		if c == nil || c.nextCheck != k.at {
			continue
		}
		at, open := heard(c.id)
		v.heardAt(c, at)
		if !open {
			v.detachAll(c)
			v.forget(c)
			continue
		}
		next := c.last + c.shortest + 1
		switch {
		case c.cut:
			next = now + DefaultSelfCheck
		case next <= now:
			next = never
			c.shortest = never
			for _, s := range c.sessions {
				c.includeTimeout(s)
				next = min(next, max(c.last, s.at)+s.silenceLimit()+1)
			}
			if next <= now {
				v.cut(c, "nothing was heard on this connection for a session's timeout")
				continue
			}
		}
		v.checkAt(c, next)
	}
}

// cutMissingPings cuts the connections on which a ping is missing.
func (v *liveness) cutMissingPings(heard Heard) {
	var quiet []*conn
	for _, c := range v.conns { // sorted below
		if at, _ := heard(c.id); !c.cut {
			v.heardAt(c, at)
			if c.missedPing(v.clock.now()) {
				quiet = append(quiet, c)
			}
		}
	}
	slices.SortFunc(quiet, func(a, b *conn) int { return cmp.Compare(a.id, b.id) })
	for _, c := range quiet {
		v.cut(c, "the shard gets another leader; connect to it")
	}
}

// checks is a heap of connections by the log time of their next check. An entry that differs from
// conn.nextCheck is stale.
type checks []check

type check struct{ at, conn uint64 }

func (h checks) Len() int { return len(h) }
func (h checks) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].conn < h[j].conn
}
func (h checks) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *checks) Push(x any)   { *h = append(*h, x.(check)) }
func (h *checks) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
