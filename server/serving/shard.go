package serving

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/busiest"
	"github.com/signalbox-dev/signalbox/server/delivery"
	"github.com/signalbox-dev/signalbox/server/hosting"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/server/session"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// Shard serves one hosted shard to clients: its delivery, and what goes back and forth between the
// replica and the connections.
type Shard struct {
	*hosting.Shard
	serving  *Serving
	requests *request.ShardRequests
	delivery *delivery.Shard
	*memberSink
	tracks *trackDecisions
	grants busiest.Grants

	// Of the apply goroutine: sink methods that come in log order.
	out          *request.Outbox
	ticketSigner session.Signer
	ticket       []byte
	replies      delivery.Replies
	ended        protocol.SessionEnded
	round        roundWriter
	appliedAt    time.Duration // clock
	slowWaits    slowWaitLog

	counts        leaderCounts
	leaderChanged chan struct{} // clients are to be told who leads
}

var (
	_ hosting.Front     = (*Shard)(nil)
	_ replica.Restorer  = (*Shard)(nil)
	_ replica.StaleSink = (*Shard)(nil)
	_ request.Shard     = (*Shard)(nil)
)

// Front makes what serves a shard whose replica is about to be started.
func (s *Serving) Front(x *hosting.Shard) hosting.Front {
	d := &Shard{Shard: x, serving: s, out: s.Requests.NewOutbox(), leaderChanged: make(chan struct{}, 1)}
	d.requests = s.Requests.NewShard(d)
	d.memberSink, d.tracks = newMemberSink(d), newTrackDecisions(d)
	d.delivery = delivery.NewShard(d.ID(), d, delivery.WatchOptions{Now: s.flusher.Now, Wake: s.flusher.Wake, Limits: s.Watches})
	d.delivery.Quota.Rejected = s.refusals.addWatcher
	return d
}

// Opened implements hosting.Front.
func (d *Shard) Opened() { d.serving.flusher.Add(d.delivery.Semaphores) }

// Run implements hosting.Front.
func (d *Shard) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { d.announceLeaders(ctx) })
	d.requests.Run(ctx)
	running.Wait()
}

// Closing implements hosting.Front.
func (d *Shard) Closing() { d.serving.Requests.Reroute() }

// Closed implements hosting.Front. Watches end with doubt. Connections with sessions at home in the
// shard are closed, so that their clients go where the shard is now. A shard that was never opened
// has neither.
func (d *Shard) Closed() {
	d.serving.flusher.Remove(d.delivery.Semaphores)
	d.delivery.Close()
	d.serving.Requests.EachClient(func(c *request.Client) {
		if c.HasHome(d) {
			c.Close(transport.Graceful, protocol.StatusUnavailable,
				"the shard does not run on this instance any more; fetch the map and reconnect")
		}
		c.Forget(d, d.delivery)
	})
	d.serving.Requests.Flush()
	d.out.Close()
	d.outbox.Close()
	d.requests.Close()
}

// Delivery implements request.Shard.
func (d *Shard) Delivery() *delivery.Shard { return d.delivery }

// Requests implements request.Shard.
func (d *Shard) Requests() *request.ShardRequests { return d.requests }

// RenewLeases implements session.Home.
func (d *Shard) RenewLeases(conn, ping uint64) { d.Raft().Ping(conn, ping) }

// RenewLeasesAfterStep implements session.Home. It may be called inside a step.
func (d *Shard) RenewLeasesAfterStep(conn, ping uint64) {
	go func() {
		d.Raft().Exclusive(func(*shard.Machine) {}) // waits for its end
		d.Raft().Ping(conn, ping)
	}()
}

// ConnClosed implements session.Home.
func (d *Shard) ConnClosed(conn uint64, heard time.Duration) { d.Raft().ConnClosed(conn, heard) }

// announceLeaders notifies every connection when the shard has a new master, or serves buckets that
// have moved. So clients need not find out by a rejected request. It runs until ctx ends.
func (d *Shard) announceLeaders(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.leaderChanged:
		}
		r := d.serving.Requests.Routes()
		if r == nil {
			continue // nobody is connected yet
		}
		if master, term := d.LeaderInstance(r.State); master != 0 {
			d.serving.Requests.Broadcast(protocol.KindMapChanged,
				&protocol.MapChanged{Version: r.State.MapVersion(), Shard: d.ID(), Master: master, Term: term})
		}
	}
}

// AnnounceLeader implements delivery.Host: it has announceLeaders run.
func (d *Shard) AnnounceLeader() {
	select {
	case d.leaderChanged <- struct{}{}:
	default:
	}
}

// LeaderChanged implements replica.Sink.
func (d *Shard) LeaderChanged(s *replica.Shard, leader uint64, leading bool) {
	defer d.serving.Requests.Guard("leader", nil)
	announce, lost := d.Shard.LeaderChanged(s, leader, leading)
	s.View(func(m *shard.Machine) { d.counts.lead(m, d.serving, leading, nodesWithTimes(d.serving.Series)) })
	if announce {
		d.AnnounceLeader()
	}
	if lost {
		d.delivery.LeadershipLost()
		d.grants.Reset()
	}
	d.out.Flush()
}

// Restored implements replica.Restorer.
func (d *Shard) Restored(*replica.Shard) {
	defer d.serving.Requests.Guard("restored", nil)
	d.counts.restart()
	d.delivery.SnapshotInstalled()
	d.out.Flush()
}

// Stale implements replica.StaleSink. It ends what is watched in nodes whose RELAXED reads are
// refused here from then on, because the machine may be older than their grace period.
func (d *Shard) Stale(s *replica.Shard, age time.Duration) {
	defer d.serving.Requests.Guard("stale", nil)
	watched := d.delivery.Quota.Nodes()
	if len(watched) == 0 {
		return
	}
	stale := make(map[uint64]bool)
	s.View(func(m *shard.Machine) {
		for _, node := range watched {
			c, ok := m.Nodes().Config(node)
			stale[node] = ok && age >= time.Duration(c.GracePeriod)*time.Millisecond
		}
	})
	d.delivery.Stale(func(node uint64) bool { return stale[node] })
	d.serving.Requests.Flush()
}

// Cut implements replica.Sink.
func (d *Shard) Cut(_ *replica.Shard, id uint64, reason string) {
	defer d.serving.Requests.Guard("cut", nil)
	if c := d.serving.Requests.Client(id); c != nil {
		c.Close(transport.Graceful, protocol.StatusUnavailable, reason)
		d.serving.Requests.Flush()
		d.serving.Metrics.CutByLeader.Inc()
	}
}

// Detach implements replica.Sink. It takes the sessions that are at home here off a connection.
func (d *Shard) Detach(_ *replica.Shard, id uint64) {
	defer d.serving.Requests.Guard("detach", nil)
	if c := d.serving.Requests.Client(id); c != nil {
		c.Detach(d, 0, math.MaxUint32)
		d.serving.Requests.Flush()
	}
}

// Pong implements replica.Sink. It renews the leases of a connection's sessions whose home shard is
// this one.
func (d *Shard) Pong(_ *replica.Shard, id, ping uint64) {
	if c := d.serving.Requests.Client(id); c != nil {
		c.Append(protocol.KindPong, ping, d.ID(), nil)
		d.serving.Requests.FlushSoon()
	}
}

// Failed implements replica.Sink.
func (d *Shard) Failed(_ *replica.Shard, origins []replica.Origin, st protocol.Status) {
	defer d.serving.Requests.Guard("failed", nil)
	o := d.serving.Requests.BorrowOutbox()
	defer d.serving.Requests.ReturnOutbox(o)
	for i := range origins {
		og := &origins[i]
		c := d.serving.Requests.Client(og.Conn)
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
