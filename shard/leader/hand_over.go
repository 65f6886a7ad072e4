package leader

import (
	"cmp"
	"slices"
)

// A client pings at a quarter of the shortest timeout of its sessions on a connection. After three
// eighths of it without a ping, one is missing.
const missedPingEighths = 3

// HandOver prepares a leadership transfer. Connections with a missing ping are cut now, so that the
// log has the remaining time of their sessions; the new leader gives all others their whole
// timeout. Take returns the detaches. The driver proposes a CmdHandOver after them, and cancels it
// if the leadership stays. Nothing else changes until another leader takes over. Heard is as for
// Tick.
//
// More sessions than usual are detached at once; those over ExpiriesPerSec count as heard.
func (l *Leader) HandOver(now uint64, heard func(conn uint64) (at uint64, open bool)) {
	if l.epoch == 0 {
		return
	}
	l.observe(now)
	if l.clock.paused {
		return // what clients sent during the pause is still in the sockets
	}
	var quiet []*conn
	for _, c := range l.conns { // sorted below
		if at, _ := heard(c.id); !c.cut {
			c.last = max(c.last, l.clock.at(at))
			if c.missedPing(l.clock.now()) {
				quiet = append(quiet, c)
			}
		}
	}
	slices.SortFunc(quiet, func(a, b *conn) int { return cmp.Compare(a.id, b.id) })
	for _, c := range quiet {
		l.cut(c, "the shard gets another leader; connect to it")
	}
	l.limiter.tokens = ExpiriesPerSec
}

// missedPing reports whether a ping is missing on the connection.
func (c *conn) missedPing(now uint64) bool {
	missed := func() bool { return now > c.last && 8*(now-c.last) > missedPingEighths*c.shortest }
	if !missed() {
		return false
	}
	c.shortest = never // the session with the shortest timeout may be gone
	for _, s := range c.sessions {
		c.includeTimeout(s)
	}
	return missed()
}
