package leader

import (
	"cmp"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// checkAt checks a connection at this log time.
func (l *liveness) checkAt(c *conn, at uint64) {
	c.nextCheck = at
	l.checks.Push(check(c.id), at)
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
	for l.checks.Len() > 0 && l.checks.First().Key <= now {
		k := l.checks.Pop()
		c := l.conns[uint64(k.Item)]
		if c == nil || c.nextCheck != k.Key {
			continue
		}
		at, open := heard(c.id)
		l.heardAt(c, at)
		if !open {
			l.detachAll(c, protocol.LinkClosed)
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
				l.cut(c, protocol.LinkSilent, "nothing was heard on this connection for a session's timeout")
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
		l.cut(c, protocol.LinkCut, "the shard gets another leader; connect to it")
	}
}

// check is the number of a connection, in a heap by the log time of its next check. One whose time
// differs from conn.nextCheck is stale.
type check uint64

// Position implements container.Item: no check is moved or removed.
func (check) Position() *int32 { return nil }

// Before implements container.Item.
func (c check) Before(o check) bool { return c < o }
