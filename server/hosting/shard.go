package hosting

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// Front serves a hosted shard to clients.
type Front interface {
	replica.Sink
	replica.MemberSink
	// Opened is called when the replica has been started. Sink methods may be called before.
	Opened()
	// Run runs from then on, until ctx ends.
	Run(ctx context.Context)
	// Closing is called before the replica is stopped: new requests must be sent elsewhere.
	Closing()
	// Closed is called when the replica has stopped and Run has returned, or when it could not be
	// started and nothing else was called.
	Closed()
}

// Shard is a data shard of which a replica runs on this instance.
type Shard struct {
	Replica uint64
	Front   Front

	id      uint64
	raft    *replica.Shard // set right before Front.Opened
	hosting *Hosting
	close   context.CancelFunc // ends the shard's goroutines
	running sync.WaitGroup     // them

	leading atomic.Bool
	leader  atomic.Uint64 // replica id, 0 for none
	term    atomic.Uint64 // since which it leads; it may be a moment older than leader

	leaderMu      sync.Mutex
	leaderLogTime uint64        // log time when this replica last began to lead
	leaderSince   time.Duration // and the clock then

	counted atomic.Pointer[countedSizes] // nil before the first count
}

// countedSizes is what was in a shard at a moment.
type countedSizes struct {
	at    time.Duration
	sizes governor.ShardSizes
}

// countPeriod is how often the contents of a shard are counted. That takes time in proportion to
// the number of coordination nodes, while the log waits.
const countPeriod = 5 * time.Second

// sizes is what is in the shard, counted at most countPeriod ago.
func (d *Shard) sizes(now time.Duration) *governor.ShardSizes {
	last := d.counted.Load()
	if last == nil || now-last.at >= countPeriod {
		var z shard.Sizes
		d.Raft().View(func(m *shard.Machine) { z = m.Metrics().Sizes() })
		last = &countedSizes{at: now, sizes: governor.ShardSizes{
			Sessions: uint64(z.Sessions), RemoteSessions: uint64(z.RemoteSessions),
			Semaphores: uint64(z.Semaphores), Bytes: z.Bytes,
		}}
		d.counted.Store(last)
	}
	return &last.sizes
}

// ID is the shard's number.
func (d *Shard) ID() uint64 { return d.id }

// Raft is the replica. Front.Opened and what comes after it may call this.
func (d *Shard) Raft() *replica.Shard { return d.raft }

// Leading reports whether the replica here leads, as far as is known here.
func (d *Shard) Leading() bool { return d.leading.Load() }

// Leader is the replica that leads, as far as is known here; 0 for none.
func (d *Shard) Leader() uint64 { return d.leader.Load() }

// LedElsewhere reports whether another instance leads the shard, as far as is known here.
func (d *Shard) LedElsewhere() bool {
	l := d.leader.Load()
	return l != 0 && l != d.Replica
}

// LeaderInstance is the instance whose replica leads the shard, as far as is known here, and the
// raft term since which it does; 0 for unknown. A replica that is not in this map is of no instance
// that a client with the map could ask.
func (d *Shard) LeaderInstance(state *meta.State) (instance, term uint64) {
	l, term := d.leader.Load(), d.term.Load()
	if l == 0 {
		return 0, 0
	}
	x, _ := state.Shard(d.id)
	r, ok := x.Replica(l)
	if !ok {
		return 0, 0
	}
	return r.Instance, term
}

// LeaderChanged notes what the replica reports, in log order. Announce: clients are to be told who
// leads. An instance that begins to lead says so when it serves, the others when they hear of it.
func (d *Shard) LeaderChanged(s *replica.Shard, leader uint64, leading bool) (announce, lost bool) {
	if leading {
		s.View(func(m *shard.Machine) {
			d.leaderMu.Lock()
			d.leaderLogTime, d.leaderSince = m.LogTime(), d.hosting.Clock.Now()
			d.leaderMu.Unlock()
		})
	}
	was := d.leading.Swap(leading)
	d.term.Store(s.Term())
	changed := d.leader.Swap(leader) != leader
	return leading && !was || changed && leader != 0 && leader != d.Replica, was && !leading
}

// MaxLogTime is a log time that this leader cannot have passed. Log time is what it was when the
// leadership began plus, at most, the clock's advance since. A second allows for the order in which
// the two were read.
func (d *Shard) MaxLogTime(m *shard.Machine, now time.Duration) uint64 {
	d.leaderMu.Lock()
	defer d.leaderMu.Unlock()
	return max(m.LogTime(), d.leaderLogTime+uint64((now-d.leaderSince)/time.Millisecond)) + 1000
}

// openShard starts a replica of a shard and serves it. cfg says which replica, and how it starts.
func (h *Hosting) openShard(cfg replica.ShardConfig) error {
	ctx, cancel := context.WithCancel(h.ctx)
	d := &Shard{id: cfg.ID, Replica: cfg.Replica, hosting: h, close: cancel}
	d.Front = h.Serve(d)
	cfg.Sink, cfg.Relay, cfg.Messages, cfg.Route, cfg.Heard = d.Front, d.Front, peerMessages{h}, h.Route, h.Heard
	raft, err := h.host.StartShard(cfg)
	if err != nil {
		cancel()
		d.Front.Closed()
		return err
	}
	d.raft = raft
	d.Front.Opened()
	h.Shards.add(d)
	d.running.Go(func() { d.Front.Run(ctx) })
	h.Go(func() { // the server's stop waits for the shard's goroutines too
		<-ctx.Done()
		d.running.Wait()
	})
	return nil
}

// CloseShard stops the replica of a shard that this instance is to have no more. The goroutine that
// follows the map calls it.
func (h *Hosting) CloseShard(d *Shard) error {
	h.Shards.remove(d)
	d.Front.Closing()
	err := h.host.StopShard(d.id)
	d.close()
	d.running.Wait()
	d.Front.Closed()
	return err
}
