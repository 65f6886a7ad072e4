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
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// desk is a data shard as this instance serves it: its replica, its hub, and what goes back and forth between them and the connections.
type desk struct {
	id      uint64
	replica uint64 // id of the replica here
	srv     *Server
	rep     *replica.Shard
	hub     *delivery.WatchHub
	pager   *pager

	watchers delivery.WatcherQuota // of coordination nodes: the hub's streams and one-shot watches, and the streams below

	processes *processes
	streams   *processStreams // over processes
	rollouts  *rollouts

	mailbox chan letter        // messages of other shards' leaders
	close   context.CancelFunc // ends the desk's goroutines
	running sync.WaitGroup     // them

	// Of the apply goroutine: sink methods that come in log order.
	out      *outbox
	epoch    uint64 // leader epoch, as the events told it
	tickets  ticketMAC
	messages deliverMessages

	// Of the barrier goroutine.
	readOut      *outbox
	readMessages *readMessages

	newMaster chan struct{} // clients are to be told who leads
	leading   atomic.Bool
	leader    atomic.Uint64 // replica id, 0 for none
	term      atomic.Uint64 // since which it leads; it may be a moment older than leader

	reignMu  sync.Mutex
	reignLog uint64        // log time when this replica last began to lead
	reignAt  time.Duration // and the clock then
}

// openDesk starts a replica of a shard and serves it. cfg says which replica, and how it starts; the rest of it is filled in here.
func (s *Server) openDesk(cfg replica.ShardConfig) error {
	ctx, cancel := context.WithCancel(s.ctx)
	d := &desk{
		id: cfg.ID, replica: cfg.Replica, srv: s, out: s.newOutbox(), readOut: s.newOutbox(), readMessages: new(readMessages), mailbox: make(chan letter, mailboxSize), close: cancel,
		newMaster: make(chan struct{}, 1),
	}
	d.pager = newPager(d)
	d.processes, d.streams = newProcesses(d), newProcessStreams(d)
	d.rollouts = newRollouts(d)
	l := &s.cfg.Limits
	d.hub = delivery.NewWatchHub(d.id, d, delivery.WatchOptions{
		Now: s.pacer.Now, Wake: s.pacer.Wake, Limits: delivery.WatchLimits{Watchers: l.MaxWatchers, Streams: l.MaxStreams, OneShots: l.MaxWatches},
		Quota: &d.watchers,
	})
	cfg.Sink, cfg.Messages, cfg.Route, cfg.Heard = d, mail{s}, s.route, s.heard
	var err error
	// The replica may call its sink before StartShard returns; d.rep is not used there.
	if d.rep, err = s.host.StartShard(cfg); err != nil {
		cancel()
		return err
	}
	s.pacer.Add(d.hub)
	s.desks.add(d)
	d.running.Go(func() { d.pager.run(ctx) })
	d.running.Go(func() { d.readMail(ctx) })
	d.running.Go(func() { d.processes.run(ctx) })
	d.running.Go(func() { d.tellMasters(ctx) })
	s.running.Go(func() { // Close of the server waits for the desk's goroutines too
		<-ctx.Done()
		d.running.Wait()
	})
	return nil
}

// closeDesk stops the replica of a shard that this instance shall not have any more. Requests that wait for it fail, watches end with doubt, and connections with sessions
// at home there are closed, so that their clients go where the shard is now. The goroutine that follows the map calls it.
func (s *Server) closeDesk(d *desk) error {
	s.desks.remove(d)
	if r := s.mapNow(); r != nil {
		s.setRoutes(r.state) // who comes now finds another way
	}
	err := s.host.StopShard(d.id)
	d.close()
	d.running.Wait()
	s.pacer.Remove(d.hub)
	d.hub.InvalidateOneShots()
	d.hub.CutStreams(protocol.StatusWrongShard, "the shard does not run on this instance any more; fetch the map and watch again")
	d.streams.cut(everyStream, protocol.StatusWrongShard, "the shard does not run on this instance any more; fetch the map and watch again")
	d.rollouts.cut(everyStream, protocol.StatusWrongShard, "the shard does not run on this instance any more; fetch the map and watch again")
	d.sendHome("the shard does not run on this instance any more; fetch the map and reconnect")
	s.kick()
	return err
}

// sendHome closes the connections that have sessions at home here.
func (d *desk) sendHome(text string) {
	d.srv.conns.each(func(c *conn) {
		c.mu.Lock()
		home := false
		for _, h := range c.homes {
			home = home || h.shard == d && h.n > 0
		}
		c.mu.Unlock()
		if home {
			c.end(endSoft, protocol.StatusUnavailable, text)
		}
	})
}

// ledElsewhere says that another instance leads the shard, as far as is known here.
func (d *desk) ledElsewhere() bool {
	l := d.leader.Load()
	return l != 0 && l != d.replica
}

// leaderInstance is the instance whose replica leads the shard, as far as is known here, and the raft term since which it does; 0 for unknown.
func (d *desk) leaderInstance() (instance, term uint64) {
	l, term := d.leader.Load(), d.term.Load()
	if l == d.replica && l != 0 {
		return d.srv.instance, term
	}
	if r := d.srv.mapNow(); r != nil && l != 0 {
		x, _ := r.state.Shard(d.id)
		for _, y := range x.Replicas {
			if y.Replica == l {
				return y.Instance, term
			}
		}
	}
	return 0, 0
}

// furthestLogTime is a log time that this leader cannot have passed: log time is what it found when it began to lead plus, at most, the clock's advance
// since. A second allows for the order in which the two were read.
func (d *desk) furthestLogTime(m *shard.Machine, now time.Duration) uint64 {
	d.reignMu.Lock()
	defer d.reignMu.Unlock()
	return max(m.LogTime(), d.reignLog+uint64((now-d.reignAt)/time.Millisecond)) + 1000
}

// LeaderChanged is told by the replica, in log order.
func (d *desk) LeaderChanged(s *replica.Shard, leader uint64, leading bool) {
	defer d.srv.guard("leader", nil)
	if leading {
		s.View(func(m *shard.Machine) {
			d.reignMu.Lock()
			d.reignLog, d.reignAt = m.LogTime(), d.srv.clock.Now()
			d.reignMu.Unlock()
		})
	}
	was := d.leading.Swap(leading)
	if was != leading {
		d.processes.reigned()
	}
	d.term.Store(s.Term())
	// Who begins to lead says so when it serves, the others when they hear of it.
	if changed := d.leader.Swap(leader) != leader; leading && !was || changed && leader != 0 && leader != d.replica {
		d.tellSoon()
	}
	if was && !leading {
		d.hub.InvalidateOneShots()
		d.rollouts.cut(everyStream, protocol.StatusUnavailable, "the shard is led elsewhere now; fetch the map and watch again")
	}
	d.out.flush()
}

// tellSoon has clients told who leads the shard.
func (d *desk) tellSoon() {
	select {
	case d.newMaster <- struct{}{}:
	default:
	}
}

// Restored is told by the replica when its machine jumped ahead without events.
func (d *desk) Restored(*replica.Shard) {
	defer d.srv.guard("restored", nil)
	d.hub.SnapshotInstalled()
	d.streams.restart()
	d.rollouts.restart()
	d.out.flush()
}

// Cut closes a connection that the leader gave up.
func (d *desk) Cut(_ *replica.Shard, id uint64, reason string) {
	defer d.srv.guard("cut", nil)
	if c := d.srv.conns.get(id); c != nil {
		o := d.srv.borrowOutbox()
		c.end(endSoft, protocol.StatusUnavailable, reason)
		d.srv.returnOutbox(o)
		d.srv.metrics.leaderCut.Inc()
	}
}

// Detach takes the sessions that are at home here off a connection.
func (d *desk) Detach(_ *replica.Shard, id uint64) {
	defer d.srv.guard("detach", nil)
	if c := d.srv.conns.get(id); c != nil {
		o := d.srv.borrowOutbox()
		d.detachFrom(o, c, 0, math.MaxUint32)
		d.srv.returnOutbox(o)
	}
}

// Pong vouches for the sessions of a connection that are at home here.
func (d *desk) Pong(_ *replica.Shard, id, ping uint64) {
	if c := d.srv.conns.get(id); c != nil {
		_, over, push := c.append(protocol.KindPong, ping, d.id, nil)
		if push {
			c.wire.push()
		}
		if over {
			c.cutSlow()
		}
		d.srv.kickSoon()
	}
}

// Failed answers requests that never entered the log.
func (d *desk) Failed(_ *replica.Shard, origins []replica.Origin, st protocol.Status) {
	defer d.srv.guard("failed", nil)
	o := d.srv.borrowOutbox()
	defer d.srv.returnOutbox(o)
	for i := range origins {
		og := &origins[i]
		c := d.srv.conns.get(og.Conn)
		if c == nil {
			continue
		}
		if og.Tag&answeredNote != 0 {
			d.relaxedFailed(o, c, og.Request, protocol.StatusUnavailable, "")
			continue
		}
		c.turnedAway(o, d, og.Kind, og.Request, st)
	}
}

// relaxedFailed takes back a RELAXED attach that the log did not take. The session is not attached: whoever believes so is told.
func (d *desk) relaxedFailed(o *outbox, c *conn, session uint64, st protocol.Status, text string) {
	c.mu.Lock()
	b := c.sessions.get(session)
	c.mu.Unlock()
	if b != nil {
		d.srv.bindings.drop(b)
		c.lose(b, st == protocol.StatusSessionExpired)
	}
	switch st {
	case protocol.StatusSessionExpired:
		o.event(c, protocol.KindSessionEnded, 0, d.id, &protocol.SessionEnded{Session: session, Reason: protocol.EndExpired, Message: text})
	default:
		// The client attaches again with a higher epoch when it is back.
		c.end(endSoft, protocol.StatusUnavailable, "the shard could not log an attach of this connection; reconnect and attach again")
	}
}

// Send and PagesDue are the hub's way out.

// Send implements watch.Sender.
func (d *desk) Send(id uint64, frame []byte, droppable bool) bool {
	c := d.srv.conns.get(id)
	if c == nil {
		return true
	}
	taken, over, push := c.appendShared(frame, droppable)
	if push {
		c.wire.push()
	}
	if over {
		d.srv.cutSlow(c)
	}
	return taken
}

// PagesDue implements watch.Sender.
func (d *desk) PagesDue(_, id uint64) {
	if c := d.srv.conns.get(id); c != nil {
		d.pager.add(c)
	}
}

// pager sends the pages of streams' snapshots, one connection after another, as long as each has room. It has a goroutine of its own for each shard: reading a page
// holds the shard's log up for a moment, which is no event loop's business.
type pager struct {
	desk *desk
	wake chan struct{}

	mu    sync.Mutex
	queue []*conn
}

// pageBytes is about the size of a snapshot's page.
const pageBytes = 128 << 10

func newPager(d *desk) *pager { return &pager{desk: d, wake: make(chan struct{}, 1)} }

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
	d := p.desk
	defer d.srv.guard("page", func() { d.srv.endNow(c, protocol.StatusInternal, "the server met a defect; reconnect") })
	if c.ending.Load() || !c.roomFor(d) {
		return
	}
	// An answer to the request that opened a stream goes out before its first page.
	c.pageGate.Lock()
	defer c.pageGate.Unlock()
	more := false
	d.rep.Exclusive(func(m *shard.Machine) {
		if more = d.hub.Page(c.id, m, pageBytes); !more {
			more = d.streams.page(c.id, m)
		}
		if !more {
			more = d.rollouts.page(c.id, m)
		}
	})
	d.srv.kick()
	if more {
		p.add(c)
	}
}

// roomFor says whether a page may be sent. If not, the shard is noted, to be served when there is room.
func (c *conn) roomFor(d *desk) bool {
	soft := c.srv.outSoft() / 2
	if c.out.waiting() <= soft {
		return true
	}
	c.mu.Lock()
	if !slices.Contains(c.pages, d) {
		c.pages = append(c.pages, d)
	}
	c.wantRoom.Store(true)
	c.mu.Unlock()
	if c.out.waiting() <= soft {
		c.room()
	}
	return false
}

// room is called by the transport after writing, and serves what waits for room if there is some now.
func (c *conn) room() {
	if !c.wantRoom.Load() || c.out.waiting() > c.srv.outSoft()/2 {
		return
	}
	c.mu.Lock()
	pages := c.pages
	c.pages = nil
	c.wantRoom.Store(false)
	c.mu.Unlock()
	for _, d := range pages {
		d.pager.add(c)
	}
}
