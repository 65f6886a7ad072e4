package server

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// Polls of tracks come once a second from thousands of instances, and nearly none changes anything. Such a poll is a read: it waits for the barrier that all reads of the moment
// share, and is answered from the machine. One that would change something, or is to be refused, goes to the log as it came. A poll never skips the barrier, whatever the node's
// read consistency: an instance that was told its target by the log must not be told an older one by a leader that is none any more.

// peek answers a poll that changes nothing. The machine is in hand. False: it goes to the log.
func (l *readList) peek(m *shard.Machine, it *readItem) bool {
	d, msg := l.desk, l.message
	wall := uint64(d.srv.clock.Wall().UnixMilli())
	if !m.PeekTrack(it.about.node, it.epoch, &msg.poll, d.rep.LogTime(), wall, &msg.pollReply) {
		return false
	}
	d.rollouts.polls.read.Add(1)
	return true
}

// handOn gives the polls that peek could not answer to the log. The machine is not in hand.
func (l *readList) handOn(o *outbox) {
	d := l.desk
	for i := range l.toLog {
		it := &l.toLog[i]
		cmd := shard.Command{Kind: shard.CmdTrackPoll, Node: it.about.node, Epoch: it.epoch, Body: it.body}
		origin := replica.Origin{Conn: it.conn.id, Request: it.id, Kind: it.kind, Tag: uint64(d.srv.clock.Now())}
		if st := d.rep.Submit(cmd, origin); st != protocol.StatusOK {
			it.conn.turnedAway(o, d, it.kind, it.id, st)
			continue
		}
		d.rollouts.polls.logged.Add(1)
	}
	clear(l.toLog)
	l.toLog = l.toLog[:0]
}
