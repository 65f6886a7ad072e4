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
	bucketsActive chan struct{} // capacity 1: clients are to be told that it serves more buckets
}

// Leading reports whether the replica here leads, as far as is known here.
func (s *Shard) Leading() bool { return s.leading.Load() }

// Leader is the replica that leads, as far as is known here; 0 for none.
func (s *Shard) Leader() uint64 { return s.leader.Load() }

// LedElsewhere reports whether another instance leads the shard, as far as is known here.
func (s *Shard) LedElsewhere() bool {
	l := s.leader.Load()
	return l != 0 && l != s.ReplicaID
}

// LeaderInstance is the instance whose replica leads the shard, as far as is known here, and the
// raft term since which it does; 0 for unknown. A replica that is not in this map is of no instance
// that a client with the map could ask.
func (s *Shard) LeaderInstance(state *meta.State) (instance, term uint64) {
	l, term := s.leader.Load(), s.term.Load()
	if l == 0 {
		return 0, 0
	}
	x, _ := state.Shard(s.id)
	r, ok := x.Replica(l)
	if !ok {
		return 0, 0
	}
	return r.Instance, term
}

// LeaderChanged implements replica.Sink: it notes what the replica reports, in log order, and does
// what the beginning and the end of a leadership bring with them. An instance that begins to lead
// tells clients so when it serves, the others when they hear of it.
func (s *Shard) LeaderChanged(rep *replica.Shard, leader uint64, leading bool) {
	defer s.serving.Requests.Guard("leader", nil)
	if leading {
		rep.View(func(m *shard.Machine) {
			s.leaderMu.Lock()
			s.leaderLogTime, s.leaderSince = m.LogTime(), s.serving.Clock.Now()
			s.leaderMu.Unlock()
		})
	}
	was := s.leading.Swap(leading)
	s.term.Store(rep.Term())
	changed := s.leader.Swap(leader) != leader
	rep.View(func(m *shard.Machine) { s.counts.lead(m, s.serving, leading, nodesWithTimes(s.serving.Series)) })
	if leading && !was || changed && leader != 0 && leader != s.ReplicaID {
		signal(s.leaderChanged)
	}
	if was && !leading {
		s.hubs.LeadershipLost()
		s.grants.Reset()
	}
	s.events.out.Flush()
}

// announceLeaders notifies clients when the shard has a new master, or serves buckets that have
// moved. So they need not find out by a rejected request. It runs until ctx ends.
func (s *Shard) announceLeaders(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.leaderChanged:
			if m := s.leaderMessage(); m != nil {
				s.serving.Requests.AnnounceLeader(m)
			}
		case <-s.bucketsActive:
			s.serving.Requests.AnnounceBuckets(s.ID(), s.leaderMessage)
		}
	}
}

// leaderMessage says who leads the shard; nil: that is unknown here, or nobody is connected yet.
func (s *Shard) leaderMessage() *protocol.MapChanged {
	r := s.serving.Requests.Routes()
	if r == nil {
		return nil
	}
	master, term := s.LeaderInstance(r.State)
	if master == 0 {
		return nil
	}
	return &protocol.MapChanged{Version: r.State.MapVersion(), Shard: s.ID(), Master: master, Term: term}
}

// signal notes that there is something to do, if that is not noted yet.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// MaxLogTime is a log time that this leader cannot have passed. Log time is what it was when the
// leadership began plus, at most, the clock's advance since. A second allows for the order in which
// the two were read.
func (s *Shard) MaxLogTime(m *shard.Machine, now time.Duration) uint64 {
	s.leaderMu.Lock()
	defer s.leaderMu.Unlock()
	return max(m.LogTime(), s.leaderLogTime+uint64((now-s.leaderSince)/time.Millisecond)) + 1000
}
