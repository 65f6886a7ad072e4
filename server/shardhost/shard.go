package shardhost

import (
	"context"
	"sync"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/busiest"
	"github.com/signalbox-dev/signalbox/server/delivery"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// Shard is a data shard of which a replica runs on this instance: the replica, and what serves it
// to clients. It is the replica's sink, and the hubs' sender.
//
// Goroutines of a hosted shard, and what each waits for. The engine's worker beside them applies
// entries, and calls the sink: it is the apply goroutine.
//
//	replica: proposer        a batch that is full, or for which there is room in flight
//	replica: barriers        the answers to read barriers
//	replica: leader's loop   ticks, and tasks of the leader: expiries, leases, other shards
//	replica: members         messages between members of processes
//	replica: rate limits     sessions that are to refresh their leases
//	announceLeaders          leaderChanged, bucketsActive: a new master; buckets that have moved
//	requests                 streams whose next page is due
//	renewLate                the end of the step that drops sessions of connections which sent pings
//
// Those of the replica end when it is stopped, announceLeaders and requests with close, and renewLate
// when no ping is left.
type Shard struct {
	ReplicaID uint64 // its id

	id      uint64
	replica *replica.Shard // set when it has been started
	serving *Serving
	close   context.CancelFunc // ends the shard's goroutines
	running sync.WaitGroup     // them

	requests *request.ShardRequests
	late     latePings
	hubs     *delivery.Hubs
	*memberSink
	limits limitSink
	tracks *trackDecisions
	grants busiest.Grants

	leadership
	sizes sizeCounter

	events    eventRouter // of the apply goroutine, as the rest
	slowWaits slowWaitLog
	counts    leaderCounts
}

var (
	_ replica.Sink       = (*Shard)(nil)
	_ delivery.Sender    = (*Shard)(nil)
	_ delivery.Leader    = (*Shard)(nil)
	_ replica.MemberSink = (*Shard)(nil)
	_ replica.Restorer   = (*Shard)(nil)
	_ replica.StaleSink  = (*Shard)(nil)
	_ request.Shard      = (*Shard)(nil)
)

// newShard makes a shard whose replica is about to be started.
func (s *Serving) newShard(id, rep uint64) *Shard {
	d := &Shard{id: id, ReplicaID: rep, serving: s}
	d.events = eventRouter{host: d, out: s.Requests.NewOutbox()}
	d.leaderChanged, d.bucketsActive = make(chan struct{}, 1), make(chan struct{}, 1)
	d.requests = s.Requests.NewShard(d)
	d.memberSink, d.tracks, d.limits.host = newMemberSink(d), newTrackDecisions(d), d
	d.hubs = delivery.NewHubs(id, d, d, delivery.WatchOptions{Now: s.flusher.Now, Wake: s.flusher.Wake,
		Limits:    s.Watches,
		Histories: s.histories, Pace: s.Requests.FanOut()})
	d.hubs.Quota.Rejected = s.refusals.addWatcher
	return d
}

// openShard starts a replica of a shard and serves it. cfg says which replica, and how it starts.
// The sink may be called from its start on, while the log is read back.
func (h *Hosting) openShard(cfg replica.ShardConfig) error {
	ctx, cancel := context.WithCancel(h.ctx)
	d := h.Serving.newShard(cfg.ID, cfg.Replica)
	d.close = cancel
	cfg.Sink, cfg.Relay, cfg.Limits = d, d, &d.limits
	cfg.Messages, cfg.Route, cfg.Heard, cfg.Format = peerMessages{h}, h.Route, h.Heard, h.Format
	raft, err := h.host.StartShard(cfg)
	if err != nil {
		cancel()
		d.closed()
		return err
	}
	d.replica = raft
	d.serving.flusher.Add(d.hubs.Semaphores)
	h.Shards.add(d)
	for _, run := range []func(context.Context){d.announceLeaders, d.requests.Run} {
		d.running.Add(1)
		h.Go(func() { // the server's stop waits for it too
			defer d.running.Done()
			run(ctx)
		})
	}
	return nil
}

// CloseShard stops the replica of a shard that this instance is to have no more. The goroutine that
// follows the map calls it. New requests are sent elsewhere first.
func (h *Hosting) CloseShard(d *Shard) error {
	h.Shards.remove(d)
	d.serving.Requests.Reroute()
	err := h.host.StopShard(d.id)
	d.close()
	d.running.Wait()
	d.closed()
	return err
}

// closed is called when the replica has stopped, and its goroutines have ended, or when it could
// not be started. Watches end with doubt. Connections with sessions at home in the shard are closed,
// so that their clients go where the shard is now. A shard that was never opened has neither.
func (s *Shard) closed() {
	s.serving.flusher.Remove(s.hubs.Semaphores)
	s.hubs.Close()
	s.serving.Requests.EachClient(func(c *request.Client) {
		if c.HasHome(s) {
			c.Close(transport.Graceful, protocol.StatusUnavailable,
				"the shard does not run on this instance any more; fetch the map and reconnect")
		}
		c.Forget(s, s.hubs)
	})
	s.serving.Requests.Flush()
	s.events.out.Close()
	s.outbox.Close()
	s.requests.Close()
}

// ID is the shard's number.
func (s *Shard) ID() uint64 { return s.id }

// Replica returns the replica that runs here. Nothing may call this before it has been started.
func (s *Shard) Replica() *replica.Shard { return s.replica }

// Hubs implements request.Shard.
func (s *Shard) Hubs() *delivery.Hubs { return s.hubs }

// Requests implements request.Shard.
func (s *Shard) Requests() *request.ShardRequests { return s.requests }
