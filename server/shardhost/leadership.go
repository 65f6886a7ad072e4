package shardhost

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// leadership is who leads a shard, as its replica here reports it.
type leadership struct {
	leading atomic.Bool
	leader  atomic.Uint64 // replica id, 0 for none
	term    atomic.Uint64 // since which it leads; it may be a moment older than leader

	leaderMu      sync.Mutex
	leaderLogTime uint64        // log time when this replica last began to lead
	leaderSince   time.Duration // and the clock then

	leaderChanged chan struct{} // capacity 1: clients are to be told who leads
}

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

// LeaderChanged implements replica.Sink: it notes what the replica reports, in log order, and does
// what the beginning and the end of a leadership bring with them. An instance that begins to lead
// tells clients so when it serves, the others when they hear of it.
func (d *Shard) LeaderChanged(s *replica.Shard, leader uint64, leading bool) {
	defer d.serving.Requests.Guard("leader", nil)
	if leading {
		s.View(func(m *shard.Machine) {
			d.leaderMu.Lock()
			d.leaderLogTime, d.leaderSince = m.LogTime(), d.serving.Clock.Now()
			d.leaderMu.Unlock()
		})
	}
	was := d.leading.Swap(leading)
	d.term.Store(s.Term())
	changed := d.leader.Swap(leader) != leader
	s.View(func(m *shard.Machine) { d.counts.lead(m, d.serving, leading, nodesWithTimes(d.serving.Series)) })
	if leading && !was || changed && leader != 0 && leader != d.Replica {
		d.AnnounceLeader()
	}
	if was && !leading {
		d.delivery.LeadershipLost()
		d.grants.Reset()
	}
	d.out.Flush()
}

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

// MaxLogTime is a log time that this leader cannot have passed. Log time is what it was when the
// leadership began plus, at most, the clock's advance since. A second allows for the order in which
// the two were read.
func (d *Shard) MaxLogTime(m *shard.Machine, now time.Duration) uint64 {
	d.leaderMu.Lock()
	defer d.leaderMu.Unlock()
	return max(m.LogTime(), d.leaderLogTime+uint64((now-d.leaderSince)/time.Millisecond)) + 1000
}
