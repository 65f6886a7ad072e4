package request

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// Thousands of instances poll their tracks once a second, and nearly no poll changes anything. Such
// a poll is a read: it waits for the barrier that all reads share, and is answered from the
// machine. A poll that would change something, or is to be rejected, goes to the log as it came. A
// poll never skips the barrier, whatever the node's read consistency: a deposed leader must not
// report an older target than the log has.

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

// answerPoll answers a poll that changes nothing; false: it goes to the log. The caller holds the
// machine.
func (l *readBatch) answerPoll(m *shard.Machine, it *readItem) bool {
	d, msg := l.host, l.message
	wall := uint64(d.Requests().server.cfg.Clock.Wall().UnixMilli())
	if !m.Tracks().Peek(it.scope.node, it.epoch, &msg.poll, d.Raft().LogTime(), wall, &msg.pollReply) {
		return false
	}
	d.Requests().PollsRead.Add(1)
	return true
}

// submitPolls hands the polls that reading could not answer to the log. The caller does not hold
// the machine.
func (l *readBatch) submitPolls(o *Outbox) {
	d := l.host
	for i := range l.toSubmit {
		it := &l.toSubmit[i]
		cmd := shard.Command{Kind: shard.CmdTrackPoll, Node: it.scope.node, Epoch: it.epoch, Body: it.body}
		origin := replica.Origin{Conn: it.conn.ID(), Request: it.id, Kind: it.kind, Tag: uint64(d.Requests().server.cfg.Clock.Now())}
		if st := d.Raft().Submit(cmd, origin); st != protocol.StatusOK {
			it.conn.RejectSubmit(o, d, it.kind, it.id, st)
			continue
		}
		d.Requests().PollsLogged.Add(1)
	}
	clear(l.toSubmit)
	l.toSubmit = l.toSubmit[:0]
}
