package server

import (
	"math"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// deliverMessages is scratch memory for what leaves a shard's log.
type deliverMessages struct {
	session protocol.SessionReply
	update  protocol.UpdateReply
	acquire protocol.AcquireReply
	release protocol.ReleaseReply
	force   protocol.ForceReleaseReply
	result  protocol.AcquireResult
	lost    protocol.LeaseLost
	ended   protocol.SessionEnded
	ticket  []byte
	joined  protocol.ProcessJoinReply
	left    protocol.ProcessLeaveReply
	round   roundWriter

	trackRevision protocol.TrackRevision
	registered    protocol.TrackRegisterReply
	trackVersion  protocol.TrackVersion
}

// Applied turns the events of one log entry into frames, each appended to what waits for its connection, and wakes the transports once at the end. It runs on
// the shard's apply goroutine while the log waits: it allocates nothing and never blocks.
func (d *shardHost) Applied(rep *replica.Shard, index uint64, origins []replica.Origin, ev *shard.Events) {
	o := d.out
	defer d.flushReplies(len(origins))
	defer d.server.guard("deliver", func() { d.deliveryFailed(origins) })
	if len(origins) > 0 {
		d.server.metrics.batch(d.server.clock.Now(), origins)
	}
	for i := range ev.List {
		e := &ev.List[i]
		switch e.Kind {
		case shard.EventReply:
			if e.Command >= 0 && e.Command < len(origins) {
				d.reply(o, &origins[e.Command], e)
			}
		case shard.EventAcquireResult:
			if c := d.server.resultConn(e); c != nil {
				m := &d.messages.result
				*m = protocol.AcquireResult{Session: e.Session, Seq: e.Seq, Status: e.Status, State: e.State, OrderID: e.OrderID, Message: e.Text}
				o.event(c, protocol.KindAcquireResult, 0, d.id, m)
			}
		case shard.EventLeaseLost:
			d.auditForced(index, e)
			if c := d.server.bindings.conn(e.Session); c != nil {
				m := &d.messages.lost
				*m = protocol.LeaseLost{Session: e.Session, Name: e.Name, OrderID: e.OrderID, Message: e.Text}
				o.event(c, protocol.KindLeaseLost, 0, d.id, m)
			}
		case shard.EventSessionAttached:
			var c *conn
			if e.Command >= 0 && e.Command < len(origins) {
				c = d.server.conns.get(origins[e.Command].Conn)
			}
			d.sessionAttached(o, c, e)
			d.logAttached(c, e)
		case shard.EventSessionEnded:
			if e.Reason == protocol.EndKilled {
				d.auditForced(index, e)
			}
			d.sessionEnded(o, e)
		case shard.EventTookOver:
			d.tookOver(o, e.Epoch)
		case shard.EventProcess:
			if d.leading.Load() { // members have a connection to the leader's instance, and are told all again by a new one
				d.notifyMember(o, &d.messages.round, e)
			}
		case shard.EventNodeDropped:
			d.hub.NodeDropped(e.Node)
			d.streams.cut(objectsOf(e.Node), protocol.StatusNotFound, "the coordination node was dropped; nothing is left to watch")
			d.tracks.cut(objectsOf(e.Node), protocol.StatusNotFound, "the coordination node was dropped; nothing is left to watch")
		case shard.EventTrackDeleted:
			d.tracks.trackDeleted(e.Node, e.Name)
		case shard.EventBucketsFrozen:
			d.bucketsFrozen(o, e)
		case shard.EventBucketsActive:
			d.hub.BucketsActive()
			if d.leading.Load() {
				d.announceLeaderSoon() // clients whose requests were refused until now need not find out by asking again and again
			}
		}
	}
	d.hub.Changed(index, ev.SemaphoreChanges)
	d.processes.count(rep, ev.ProcessChanges)
	d.streams.processesChanged(rep, index, ev.ProcessChanges)
	d.tracks.tracksChanged(index, ev.TrackChanges)
}

// flushReplies has written what was made of an entry. A batch of a few commands is that of a shard with little to do: its answers are written here, since the switch
// to an event loop would be most of their way.
func (d *shardHost) flushReplies(commands int) {
	if commands > 0 && commands <= maxDirectWrites {
		d.out.flushDirect()
	} else {
		d.out.flush()
	}
}

// reply answers one command of a batch that this instance proposed.
func (d *shardHost) reply(o *outbox, og *replica.Origin, e *shard.Event) {
	if og.Conn == 0 {
		return
	}
	c := d.server.conns.get(og.Conn)
	if c == nil {
		d.server.metrics.repliesDropped.Inc()
		return
	}
	if og.Tag&unloggedNote != 0 {
		if e.Status != protocol.StatusOK {
			d.unloggedAttachFailed(o, c, og.Request, e.Status, e.Text)
		}
		return
	}
	if e.Status != protocol.StatusOK {
		o.rejectByShard(c, d, og.Kind, og.Request, e.Status, e.Text)
		return
	}
	var m protocol.Message
	switch og.Kind {
	case protocol.KindSessionStart, protocol.KindSessionAttach:
		current, _ := d.server.routing().keys()
		d.messages.ticket = d.ticketSigner.appendTicket(d.messages.ticket[:0], current, e.Session, e.Node, e.Epoch, c.identity)
		d.messages.session = protocol.SessionReply{
			Session: e.Session, Epoch: e.Epoch, Shard: d.id, Timeout: e.Timeout, Grace: e.Grace, Ticket: d.messages.ticket,
		}
		m = &d.messages.session
	case protocol.KindUpdate:
		d.messages.update = protocol.UpdateReply{Version: e.Version}
		m = &d.messages.update
	case protocol.KindAcquire:
		d.messages.acquire = protocol.AcquireReply{State: e.State, OrderID: e.OrderID}
		m = &d.messages.acquire
	case protocol.KindRelease:
		d.messages.release = protocol.ReleaseReply{Released: e.Flag}
		m = &d.messages.release
	case protocol.KindForceRelease:
		d.messages.force = protocol.ForceReleaseReply{Released: e.Version}
		m = &d.messages.force
	case protocol.KindProcessJoin:
		d.messages.joined = protocol.ProcessJoinReply{Order: e.OrderID, Topology: e.Version, Returned: e.Flag, AlreadyMember: e.AlreadyMember}
		m = &d.messages.joined
	case protocol.KindProcessLeave:
		d.messages.left = protocol.ProcessLeaveReply{CompletedEpoch: e.Version}
		m = &d.messages.left
	case protocol.KindTrackCreate, protocol.KindTrackAlter:
		d.messages.trackRevision = protocol.TrackRevision{Revision: e.Version}
		m = &d.messages.trackRevision
	case protocol.KindTrackRegister:
		d.messages.registered = protocol.TrackRegisterReply{Incarnation: e.Version}
		m = &d.messages.registered
	case protocol.KindTrackPoll:
		m = e.Poll
	case protocol.KindTrackPublish:
		d.messages.trackVersion = protocol.TrackVersion{Version: e.Version}
		m = &d.messages.trackVersion
	}
	o.reply(c, og.Kind, og.Request, m)
}

// ended is told by the home's log that a session is gone.
func (d *shardHost) sessionEnded(o *outbox, e *shard.Event) {
	d.server.metrics.sessionEnded(e.Reason)
	// Noted before the bindings go: a result that another shard has meanwhile finds the one or the other.
	if c := d.server.bindings.conn(e.Session); c != nil {
		d.server.bindings.ended.add(e.Session, c.id, d.server.clock.Now())
	}
	client := ""
	for _, b := range d.server.bindings.removeAll(e.Session) {
		client = b.conn.remote
		b.conn.unbind(b, true)
		m := &d.messages.ended
		*m = protocol.SessionEnded{Session: e.Session, Reason: e.Reason, Message: e.Text}
		o.event(b.conn, protocol.KindSessionEnded, 0, d.id, m)
	}
	d.logEnded(e, client)
}

// detach takes sessions at home in a run of buckets off the connections that attached them here,
// and tells their clients to attach them again where the map sends them. The rest of what those
// connections have stays as it is. What the clients hold they go on holding until the time they
// were last vouched for is over. The event is in the connection's buffer before any later pong, so
// no such pong renews an old attach.
func (d *shardHost) detachSessions(o *outbox, first, count uint32) {
	d.server.conns.each(func(c *conn) { d.detachConn(o, c, first, count) })
}

func (d *shardHost) detachConn(o *outbox, c *conn, first, count uint32) {
	for _, b := range c.homeBindings(d, first, count) {
		d.server.bindings.remove(b)
		c.unbind(b, false)
		o.event(c, protocol.KindDetached, 0, d.id, &protocol.Detached{Session: b.session, Epoch: b.epoch})
	}
}

// frozen is told that the shard serves a run of buckets no more.
func (d *shardHost) bucketsFrozen(o *outbox, e *shard.Event) {
	first, count, total := e.First, e.Count, e.Total
	d.detachSessions(o, first, count)
	d.hub.BucketsFrozen(func(node uint64, name []byte) bool {
		b := protocol.Bucket(node, name, total)
		return b >= first && b-first < count
	})
	d.streams.cut(func(node uint64, name []byte) bool {
		b := protocol.ProcessBucket(node, name, total)
		return b >= first && b-first < count
	}, protocol.StatusWrongShard, "the process's bucket moves to another shard; fetch the map and ask its instance")
	d.tracks.cut(func(node uint64, name []byte) bool {
		b := protocol.Bucket(node, name, total)
		return b >= first && b-first < count
	}, protocol.StatusWrongShard, "the track's bucket moves to another shard; fetch the map and ask its instance")
}

// tookOver is told that a leader's epoch is in the log. A new leader (a retake keeps the term) has detached every session: those attached here must be attached again.
// Their connections stay: sessions at home in other shards, and whatever else they have, lose nothing.
func (d *shardHost) tookOver(o *outbox, epoch uint64) {
	was := d.epoch
	d.epoch = epoch
	if was == 0 || was>>16 == epoch>>16 {
		return
	}
	d.hub.InvalidateOneShots()
	d.detachSessions(o, 0, math.MaxUint32)
}

// deliveryFailed is the answer to a defect while delivering: the connections whose requests were in the batch are closed, since their answers are lost.
func (d *shardHost) deliveryFailed(origins []replica.Origin) {
	for i := range origins {
		if c := d.server.conns.get(origins[i].Conn); c != nil {
			c.close(closeImmediate, protocol.StatusInternal, "the server met a defect while answering; reconnect and send again")
		}
	}
}

// heard is when something last came in on a connection; 0 when it is closed.
func (s *Server) lastReceived(id uint64) time.Duration {
	if c := s.conns.get(id); c != nil {
		return time.Duration(c.lastReceived.Load())
	}
	return 0
}
