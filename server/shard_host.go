package server

import (
	"context"
	"math"
	"sync"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/delivery"
	"github.com/signalbox-dev/signalbox/server/hosting"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/server/session"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// shardHost serves a hosted shard to clients: its delivery, and what goes back and forth between
// the replica and the connections.
type shardHost struct {
	*hosting.Shard
	id       uint64         // Shard.ID
	raft     *replica.Shard // Shard.Raft
	server   *Server
	requests *request.ShardRequests

	delivery *delivery.Shard
	*memberSink
	tracks *trackDecisions

	// Of the apply goroutine: sink methods that come in log order.
	out          *request.Outbox
	ticketSigner session.Signer
	ticket       []byte
	replies      delivery.Replies
	ended        protocol.SessionEnded
	round        roundWriter

	leaderChanged chan struct{} // clients are to be told who leads
}

var _ hosting.Front = (*shardHost)(nil)

// newShardHost serves a shard whose replica is about to be started.
func newShardHost(s *Server, x *hosting.Shard) *shardHost {
	d := &shardHost{
		Shard: x, id: x.ID, server: s, out: s.requests.NewOutbox(),
		leaderChanged: make(chan struct{}, 1),
	}
	d.requests = s.requests.NewShard(d)
	d.memberSink, d.tracks = newMemberSink(d), newTrackDecisions(d)
	l := &s.cfg.Limits
	d.delivery = delivery.NewShard(d.id, d, delivery.WatchOptions{
		Now: s.flusher.Now, Wake: s.flusher.Wake, Limits: delivery.WatchLimits{Watchers: l.MaxWatchers, Streams: l.MaxStreams, OneShots: l.MaxWatches},
	})
	return d
}

// Opened implements hosting.Front.
func (d *shardHost) Opened(raft *replica.Shard) {
	d.raft = raft
	d.server.flusher.Add(d.delivery.Semaphores)
}

// Run implements hosting.Front.
func (d *shardHost) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { d.announceLeaders(ctx) })
	d.requests.Run(ctx)
	running.Wait()
}

// Closing implements hosting.Front.
func (d *shardHost) Closing() {
	if s := d.server; s.routing() != nil {
		s.requests.SetRoutes(request.NewRoutes(s.routing().State, s.shards.forRequests, s.routing()))
	}
}

// Closed implements hosting.Front. Watches end with doubt. Connections with sessions at home in the
// shard are closed, so that their clients go where the shard is now.
func (d *shardHost) Closed() {
	d.server.flusher.Remove(d.delivery.Semaphores)
	d.delivery.Close()
	d.closeHomeConns("the shard does not run on this instance any more; fetch the map and reconnect")
	d.server.transport.Flush()
}

// shardTable finds the shards that this instance hosts, as it serves them.
type shardTable struct{ *hosting.Table }

func (t shardTable) get(id uint64) *shardHost {
	if x := t.Get(id); x != nil {
		return x.Front.(*shardHost)
	}
	return nil
}

func (t shardTable) all() (list []*shardHost) {
	for _, x := range t.All() {
		list = append(list, x.Front.(*shardHost))
	}
	return list
}

// forRequests is get for requests.
func (t shardTable) forRequests(id uint64) request.Shard {
	if d := t.get(id); d != nil {
		return d
	}
	return nil
}

// closeHomeConns closes the connections that have sessions at home here.
func (d *shardHost) closeHomeConns(text string) {
	d.server.requests.EachClient(func(c *request.Client) {
		if c.HasHome(d) {
			c.Close(transport.Graceful, protocol.StatusUnavailable, text)
		}
	})
}

// LeaderChanged implements replica.Sink.
func (d *shardHost) LeaderChanged(s *replica.Shard, leader uint64, leading bool) {
	defer d.server.guard("leader", nil)
	announce, lost := d.Shard.LeaderChanged(s, leader, leading)
	if announce {
		d.announceLeaderSoon()
	}
	if lost {
		d.delivery.LeadershipLost()
	}
	d.out.Flush()
}

// announceLeaderSoon has announceLeaders run.
func (d *shardHost) announceLeaderSoon() {
	select {
	case d.leaderChanged <- struct{}{}:
	default:
	}
}

// announceLeaders notifies every connection when the shard has a new master, or serves buckets that
// have moved. So clients need not find out by a rejected request. It runs until ctx ends.
func (d *shardHost) announceLeaders(ctx context.Context) {
	s := d.server
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.leaderChanged:
		}
		r := s.routing()
		if master, term := d.LeaderInstance(); master != 0 && r != nil { // nil: nobody is connected yet
			s.broadcastMapChanged(&protocol.MapChanged{Version: r.State.MapVersion(), Shard: d.id, Master: master, Term: term})
		}
	}
}

// Restored implements replica.Restorer.
func (d *shardHost) Restored(*replica.Shard) {
	defer d.server.guard("restored", nil)
	d.delivery.SnapshotInstalled()
	d.out.Flush()
}

// Cut implements replica.Sink.
func (d *shardHost) Cut(_ *replica.Shard, id uint64, reason string) {
	defer d.server.guard("cut", nil)
	if c := d.server.requests.Client(id); c != nil {
		c.Close(transport.Graceful, protocol.StatusUnavailable, reason)
		d.server.transport.Flush()
		d.server.metrics.CutByLeader.Inc()
	}
}

// Detach takes the sessions that are at home here off a connection.
func (d *shardHost) Detach(_ *replica.Shard, id uint64) {
	defer d.server.guard("detach", nil)
	if c := d.server.requests.Client(id); c != nil {
		c.Detach(d, 0, math.MaxUint32)
		d.server.transport.Flush()
	}
}

// Pong renews the leases of a connection's sessions whose home shard is this one.
func (d *shardHost) Pong(_ *replica.Shard, id, ping uint64) {
	if c := d.server.transport.Conn(id); c != nil {
		c.Append(protocol.KindPong, ping, d.id, nil)
		d.server.transport.FlushSoon()
	}
}

// Failed implements replica.Sink.
func (d *shardHost) Failed(_ *replica.Shard, origins []replica.Origin, st protocol.Status) {
	defer d.server.guard("failed", nil)
	o := d.server.requests.BorrowOutbox()
	defer d.server.requests.ReturnOutbox(o)
	for i := range origins {
		og := &origins[i]
		c := d.server.requests.Client(og.Conn)
		if c == nil {
			continue
		}
		if og.Tag&request.UnloggedNote != 0 {
			d.unloggedAttachFailed(c, og.Request, protocol.StatusUnavailable, "")
			continue
		}
		c.RejectSubmit(o, d, og.Kind, og.Request, st)
	}
}

// unloggedAttachFailed takes back a RELAXED attach that the log did not take, and notifies the
// client: the session is not attached.
func (d *shardHost) unloggedAttachFailed(c *request.Client, session uint64, st protocol.Status, text string) {
	c.Unbind(session, st == protocol.StatusSessionExpired)
	switch st {
	case protocol.StatusSessionExpired:
		c.Append(protocol.KindSessionEnded, 0, d.id, &protocol.SessionEnded{Session: session, Reason: protocol.EndExpired, Message: text})
	default:
		// The client attaches again with a higher epoch when it is back.
		c.Close(transport.Graceful, protocol.StatusUnavailable, "the shard could not log an attach of this connection; reconnect and attach again")
	}
}

// Send implements delivery.Sender.
func (d *shardHost) Send(id uint64, frame []byte, droppable bool) bool {
	c := d.server.transport.Conn(id)
	return c == nil || c.AppendShared(frame, droppable)
}

// PagesDue implements delivery.Sender.
func (d *shardHost) PagesDue(_, id uint64) {
	if c := d.server.requests.Client(id); c != nil {
		d.requests.SendPages(c)
	}
}
