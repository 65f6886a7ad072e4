package leader

import (
	"cmp"
	"slices"
)

// A client pings at a quarter of the shortest timeout of its sessions on a connection. One that was
// silent for longer than three eighths of it has missed a ping.
const missedPingEighths = 3

// HandOver prepares for another leader, which this one is about to make. Connections on which a
// ping was missed are cut now, so that the log has what is left of their sessions' time; the new
// leader gives the other sessions their whole timeout. Take returns the detaches; the driver
// proposes a CmdHandOver behind them, and if the leadership stays, another that takes it back.
// Nothing else changes: this leader leads on until another one takes over. Heard is as for Tick.
//
// More sessions are detached at once than at other times; those beyond ExpiriesPerSec count as
// heard.
func (l *Leader) HandOver(now uint64, heard func(conn uint64) (at uint64, open bool)) {
	if l.epoch == 0 {
		return
	}
	l.observe(now)
	if l.clock.paused {
		return // what clients sent meanwhile is still in the sockets
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

// missedPing says that a ping was missed on the connection.
func (c *conn) missedPing(now uint64) bool {
	missed := func() bool { return now > c.last && 8*(now-c.last) > missedPingEighths*c.shortest }
	if !missed() {
		return false
	}
	c.shortest = never // it may have been a session's that is gone
	for _, s := range c.sessions {
		c.includeTimeout(s)
	}
	return missed()
}
