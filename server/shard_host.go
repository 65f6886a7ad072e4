package server

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/delivery"
	"github.com/signalbox-dev/signalbox/server/session"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// shardHost is a data shard as this instance serves it: its replica, its delivery, and what goes back and forth between them and the connections.
type shardHost struct {
	id      uint64
	replica uint64 // id of the replica here
	server  *Server
	raft    *replica.Shard
	pager   *pager

	delivery  *delivery.Shard
	processes *memberSink
	tracks    *trackDecisions

	inbox   chan peerMessage   // messages of other shards' leaders
	close   context.CancelFunc // ends the shard host's goroutines
	running sync.WaitGroup     // them

	// Of the apply goroutine: sink methods that come in log order.
	out          *outbox
	ticketSigner session.Signer
	ticket       []byte
	replies      delivery.Replies
	ended        protocol.SessionEnded
	round        roundWriter

	// Of the barrier goroutine.
	barrierOutbox   *outbox
	barrierMessages *readReplies

	leaderChanged chan struct{} // clients are to be told who leads
	leading       atomic.Bool
	leader        atomic.Uint64 // replica id, 0 for none
	term          atomic.Uint64 // since which it leads; it may be a moment older than leader

	leaderMu      sync.Mutex
	leaderLogTime uint64        // log time when this replica last began to lead
	leaderSince   time.Duration // and the clock then
}

// open starts a replica of a shard and serves it. cfg says which replica, and how it starts; the rest of it is filled in here.
func (h *hosting) open(cfg replica.ShardConfig) error {
	s := h.server
	ctx, cancel := context.WithCancel(s.ctx)
	d := &shardHost{
		id: cfg.ID, replica: cfg.Replica, server: s, out: s.newOutbox(), barrierOutbox: s.newOutbox(), barrierMessages: new(readReplies), inbox: make(chan peerMessage, inboxSize), close: cancel,
		leaderChanged: make(chan struct{}, 1),
	}
	d.pager = newPager(d)
	d.processes, d.tracks = newMemberSink(d), newTrackDecisions(d)
	l := &s.cfg.Limits
	d.delivery = delivery.NewShard(d.id, d, delivery.WatchOptions{
		Now: s.flusher.Now, Wake: s.flusher.Wake, Limits: delivery.WatchLimits{Watchers: l.MaxWatchers, Streams: l.MaxStreams, OneShots: l.MaxWatches},
	})
	cfg.Sink, cfg.Messages, cfg.Relay, cfg.Route, cfg.Heard = d, peerMessages{s}, d.processes, func(tier uint8, bucket uint32) (shard, epoch uint64) { return s.routing().home(tier, bucket) }, s.lastReceived
	var err error
	// The replica may call its sink before StartShard returns; d.raft is not set yet.
	if d.raft, err = s.host.StartShard(cfg); err != nil {
		cancel()
		return err
	}
	s.flusher.Add(d.delivery.Semaphores)
	s.shards.add(d)
	d.running.Go(func() { d.pager.run(ctx) })
	d.running.Go(func() { d.receiveMessages(ctx) })
	d.running.Go(func() { d.announceLeaders(ctx) })
	s.running.Go(func() { // Close of the server waits for the shard host's goroutines too
		<-ctx.Done()
		d.running.Wait()
	})
	return nil
}

// close stops the replica of a shard that this instance shall not have any more. Requests that wait for it fail, watches end with doubt, and connections with sessions
// at home there are closed, so that their clients go where the shard is now. The goroutine that follows the map calls it.
func (h *hosting) close(d *shardHost) error {
	s := h.server
	s.shards.remove(d)
	if r := s.routing(); r != nil {
		s.routes.Store(newRoutes(r.state, &s.shards, r)) // new requests are sent elsewhere
	}
	err := s.host.StopShard(d.id)
	d.close()
	d.running.Wait()
	s.flusher.Remove(d.delivery.Semaphores)
	d.delivery.Close()
	d.closeHomeConns("the shard does not run on this instance any more; fetch the map and reconnect")
	s.transport.Flush()
	return err
}

// closeHomeConns closes the connections that have sessions at home here.
func (d *shardHost) closeHomeConns(text string) {
	d.server.eachConn(func(c *conn) {
		if c.HasHome(d) {
			c.Close(transport.Graceful, protocol.StatusUnavailable, text)
		}
	})
}

// ledElsewhere says that another instance leads the shard, as far as is known here.
func (d *shardHost) ledElsewhere() bool {
	l := d.leader.Load()
	return l != 0 && l != d.replica
}

// leaderInstance is the instance whose replica leads the shard, as far as is known here, and the raft term since which it does; 0 for unknown.
func (d *shardHost) leaderInstance() (instance, term uint64) {
	l, term := d.leader.Load(), d.term.Load()
	if l == d.replica && l != 0 {
		return d.server.instance, term
	}
	if r := d.server.routing(); r != nil && l != 0 {
		x, _ := r.state.Shard(d.id)
		for _, y := range x.Replicas {
			if y.Replica == l {
				return y.Instance, term
			}
		}
	}
	return 0, 0
}

// maxLogTime is a log time that this leader cannot have passed: log time is what it found when it began to lead plus, at most, the clock's advance
// since. A second allows for the order in which the two were read.
func (d *shardHost) maxLogTime(m *shard.Machine, now time.Duration) uint64 {
	d.leaderMu.Lock()
	defer d.leaderMu.Unlock()
	return max(m.LogTime(), d.leaderLogTime+uint64((now-d.leaderSince)/time.Millisecond)) + 1000
}

// LeaderChanged is told by the replica, in log order.
func (d *shardHost) LeaderChanged(s *replica.Shard, leader uint64, leading bool) {
	defer d.server.guard("leader", nil)
	if leading {
		s.View(func(m *shard.Machine) {
			d.leaderMu.Lock()
			d.leaderLogTime, d.leaderSince = m.LogTime(), d.server.clock.Now()
			d.leaderMu.Unlock()
		})
	}
	was := d.leading.Swap(leading)
	d.term.Store(s.Term())
	// Who begins to lead says so when it serves, the others when they hear of it.
	if changed := d.leader.Swap(leader) != leader; leading && !was || changed && leader != 0 && leader != d.replica {
		d.announceLeaderSoon()
	}
	if was && !leading {
		d.delivery.LeadershipLost()
	}
	d.out.flush()
}

// announceLeaderSoon has clients told who leads the shard.
func (d *shardHost) announceLeaderSoon() {
	select {
	case d.leaderChanged <- struct{}{}:
	default:
	}
}

// Restored is told by the replica when its machine jumped ahead without events.
func (d *shardHost) Restored(*replica.Shard) {
	defer d.server.guard("restored", nil)
	d.delivery.SnapshotInstalled()
	d.out.flush()
}

// Cut closes a connection that the leader gave up.
func (d *shardHost) Cut(_ *replica.Shard, id uint64, reason string) {
	defer d.server.guard("cut", nil)
	if c := d.server.conn(id); c != nil {
		c.Close(transport.Graceful, protocol.StatusUnavailable, reason)
		d.server.transport.Flush()
		d.server.metrics.CutByLeader.Inc()
	}
}

// Detach takes the sessions that are at home here off a connection.
func (d *shardHost) Detach(_ *replica.Shard, id uint64) {
	defer d.server.guard("detach", nil)
	if c := d.server.conn(id); c != nil {
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

// Failed answers requests that never entered the log.
func (d *shardHost) Failed(_ *replica.Shard, origins []replica.Origin, st protocol.Status) {
	defer d.server.guard("failed", nil)
	o := d.server.borrowOutbox()
	defer d.server.returnOutbox(o)
	for i := range origins {
		og := &origins[i]
		c := d.server.conn(og.Conn)
		if c == nil {
			continue
		}
		if og.Tag&unloggedNote != 0 {
			d.unloggedAttachFailed(c, og.Request, protocol.StatusUnavailable, "")
			continue
		}
		c.rejectSubmit(o, d, og.Kind, og.Request, st)
	}
}

// unloggedAttachFailed takes back a RELAXED attach that the log did not take. The session is not attached: whoever believes so is told.
func (d *shardHost) unloggedAttachFailed(c *conn, session uint64, st protocol.Status, text string) {
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
	if c := d.server.conn(id); c != nil {
		d.pager.add(c)
	}
}

// pager sends the pages of streams' snapshots, one connection after another, as long as each has room. It has a goroutine of its own for each shard: reading a page
// holds the shard's log up for a moment, which is no event loop's business.
type pager struct {
	host *shardHost
	wake chan struct{}

	mu    sync.Mutex
	queue []*conn
}

// pageBytes is about the size of a snapshot's page.
const pageBytes = 128 << 10

func newPager(d *shardHost) *pager { return &pager{host: d, wake: make(chan struct{}, 1)} }

// add has the connection's due pages sent.
func (p *pager) add(c *conn) {
	p.mu.Lock()
	if !slices.Contains(p.queue, c) {
		p.queue = append(p.queue, c)
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pager) take() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		return nil
	}
	c := p.queue[0]
	p.queue[0] = nil
	p.queue = p.queue[1:]
	return c
}

func (p *pager) run(ctx context.Context) {
	for {
		c := p.take()
		if c == nil {
			select {
			case <-ctx.Done():
				return
			case <-p.wake:
			}
			continue
		}
		p.serve(c)
	}
}

// serve sends one page, and comes back for more while there is room; without room the connection's transport calls again when there is.
func (p *pager) serve(c *conn) {
	d := p.host
	defer d.server.guard("page", func() { d.server.closeNow(c, protocol.StatusInternal, "the server met a defect; reconnect") })
	if c.Ending() || !c.hasRoom(d) {
		return
	}
	// An answer to the request that opened a stream goes out before its first page.
	c.pageMu.Lock()
	defer c.pageMu.Unlock()
	more := false
	d.raft.Exclusive(func(m *shard.Machine) {
		more = d.delivery.Page(c.ID(), m, pageBytes)
	})
	d.server.transport.Flush()
	if more {
		p.add(c)
	}
}

// hasRoom says whether a page may be sent. If not, the shard is noted, to be served when there is room.
func (c *conn) hasRoom(d *shardHost) bool {
	if c.HasRoom() {
		return true
	}
	c.duePagesMu.Lock()
	if !slices.Contains(c.duePages, d) {
		c.duePages = append(c.duePages, d)
	}
	c.duePagesMu.Unlock()
	c.AwaitRoom()
	return false
}
