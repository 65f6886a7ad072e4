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
		buffer: func() readBuffer { return readBuffer{new(protocol.TrackPoll), new(protocol.TrackPollReply)} },
		answer: func(x reading, q request, out protocol.Message) (bool, error) {
			return x.answerPoll(q.(*protocol.TrackPoll), out.(*protocol.TrackPollReply)), nil
		},
	}
}

// answerPoll answers a poll that changes nothing; false: it goes to the log. The caller holds the
// machine.
func (x reading) answerPoll(q *protocol.TrackPoll, out *protocol.TrackPollReply) bool {
	own := x.host.Requests()
	wall := uint64(own.server.cfg.Clock.Wall().UnixMilli())
	if !x.m.Tracks().Peek(x.it.scope.node, x.it.epoch, q, x.host.Replica().LogTime(), wall, out) {
		return false
	}
	own.PollsRead.Add(1)
	return true
}

// submitPolls hands the polls that reading could not answer to the log. The caller does not hold
// the machine.
func (r *readBatch) submitPolls(o *Outbox) {
	d := r.host
	for i := range r.toSubmit {
		it := &r.toSubmit[i]
		cmd := shard.Command{Kind: shard.CmdTrackPoll, Node: it.scope.node, Epoch: it.epoch, Body: it.body}
		origin := replica.Origin{Conn: it.conn.ID(), Request: it.id, Kind: it.kind,
			Tag: uint64(d.Requests().server.cfg.Clock.Now())}
		if st := d.Replica().Submit(cmd, origin); st != protocol.StatusOK {
			it.conn.RejectSubmit(o, d, it.kind, it.id, st)
			continue
		}
		d.Requests().PollsLogged.Add(1)
	}
	clear(r.toSubmit)
	r.toSubmit = r.toSubmit[:0]
}
