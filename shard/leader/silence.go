package leader

import (
	"cmp"
	"container/heap"
	"slices"
)

// checkAt checks a connection at this log time.
func (l *liveness) checkAt(c *conn, at uint64) {
	c.nextCheck = at
	heap.Push(&l.checks, check{at, c.id})
}

// scheduleCheck checks the connection no later than its shortest limit demands.
func (l *liveness) scheduleCheck(c *conn) {
	if at := c.last + c.shortest + 1; at < c.nextCheck {
		l.checkAt(c, at)
	}
}

// checkSilence checks the connections whose time has come.
func (l *liveness) checkSilence(heard Heard) {
	now := l.clock.now()
	for len(l.checks) > 0 && l.checks[0].at <= now {
		k := heap.Pop(&l.checks).(check)
		c := l.conns[k.conn]
		if c == nil || c.nextCheck != k.at {
			continue
		}
		at, open := heard(c.id)
		l.heardAt(c, at)
		if !open {
			l.detachAll(c)
			l.forget(c)
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
				l.cut(c, "nothing was heard on this connection for a session's timeout")
				continue
			}
		}
		l.checkAt(c, next)
	}
}

// cutMissingPings cuts the connections on which a ping is missing.
func (l *liveness) cutMissingPings(heard Heard) {
	var quiet []*conn
	for _, c := range l.conns { // sorted below
		if at, _ := heard(c.id); !c.cut {
			l.heardAt(c, at)
			if c.missedPing(l.clock.now()) {
				quiet = append(quiet, c)
			}
		}
	}
	slices.SortFunc(quiet, func(a, b *conn) int { return cmp.Compare(a.id, b.id) })
	for _, c := range quiet {
		l.cut(c, "the shard gets another leader; connect to it")
	}
}

// checks is a heap of connections by the log time of their next check. An entry that differs from
// conn.nextCheck is stale.
type checks []check

type check struct{ at, conn uint64 }

func (c checks) Len() int { return len(c) }
func (c checks) Less(i, j int) bool {
	return c[i].at < c[j].at || c[i].at == c[j].at && c[i].conn < c[j].conn
}
func (c checks) Swap(i, j int) { c[i], c[j] = c[j], c[i] }
func (c *checks) Push(x any)   { *c = append(*c, x.(check)) }
func (c *checks) Pop() any {
	old := *c
	x := old[len(old)-1]
	*c = old[:len(old)-1]
	return x
}
