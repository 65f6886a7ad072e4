package server

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// Polls of tracks come once a second from thousands of instances, and nearly none changes anything. Such a poll is a read: it waits for the barrier that all reads of the moment
// share, and is answered from the machine. One that would change something, or is to be refused, goes to the log as it came. A poll never skips the barrier, whatever the node's
// read consistency: an instance that was told its target by the log must not be told an older one by a leader that is none any more.

// pollKind is how a poll is read.
func pollKind() *readKind {
	return &readKind{
		body: func(r *readRequests) request { return &r.poll },
		answer: func(l *readBatch, m *shard.Machine, it *readItem) (protocol.Message, error) {
			if !l.answerPoll(m, it) {
				return nil, nil
			}
			return &l.message.pollReply, nil
		},
	}
}

// answerPoll answers a poll that changes nothing. The machine is in hand. False: it goes to the log.
func (l *readBatch) answerPoll(m *shard.Machine, it *readItem) bool {
	d, msg := l.host, l.message
	wall := uint64(d.server.clock.Wall().UnixMilli())
	if !m.PeekTrack(it.scope.node, it.epoch, &msg.poll, d.raft.LogTime(), wall, &msg.pollReply) {
		return false
	}
	d.tracks.polls.read.Add(1)
	return true
}

// submitPolls gives the polls that could not be answered by reading to the log. The machine is not in hand.
func (l *readBatch) submitPolls(o *outbox) {
	d := l.host
	for i := range l.toSubmit {
		it := &l.toSubmit[i]
		cmd := shard.Command{Kind: shard.CmdTrackPoll, Node: it.scope.node, Epoch: it.epoch, Body: it.body}
		origin := replica.Origin{Conn: it.conn.ID(), Request: it.id, Kind: it.kind, Tag: uint64(d.server.clock.Now())}
		if st := d.raft.Submit(cmd, origin); st != protocol.StatusOK {
			it.conn.rejectSubmit(o, d, it.kind, it.id, st)
			continue
		}
		d.tracks.polls.logged.Add(1)
	}
	clear(l.toSubmit)
	l.toSubmit = l.toSubmit[:0]
}
