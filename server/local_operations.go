package server

import (
	"context"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/shard"
)

// localOperations is what this instance does for the governor, wherever that runs: with the shards that are led here, and with the raft groups it is a member of.
type localOperations struct{ s *Server }

var _ cluster.Local = localOperations{}

// shard finds a shard here. What is not here may be elsewhere.
func (l localOperations) shard(id uint64) (*shardHost, error) {
	if d := l.s.shards.get(id); d != nil {
		return d, nil
	}
	return nil, protocol.Errorf(protocol.StatusWrongShard, "shard %d does not run on this instance", id)
}

// ledShard finds a shard that is led here, as far as is known.
func (l localOperations) ledShard(id uint64) (*shardHost, error) {
	d, err := l.shard(id)
	if err == nil && d.ledElsewhere() {
		return nil, protocol.Errorf(protocol.StatusWrongShard, "shard %d is not led on this instance", id)
	}
	return d, err
}

// openTimeout is how long a command waits for a new shard to be opened, and led, here.
const openTimeout = 500 * time.Millisecond

// awaitOpened waits for a shard that begins on this instance: the governor may be faster than who follows the map.
func (l localOperations) awaitOpened(ctx context.Context, id uint64) {
	x, ok := l.s.meta.State().Shard(id)
	if r, here := x.On(l.s.instance); !ok || !here || x.Ready || !r.Founder || len(x.Replicas) > 1 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	_ = poll(ctx, func() bool {
		d := l.s.shards.get(id)
		return d != nil && d.leading.Load() || l.s.ctx.Err() != nil
	})
}

// Propose implements governor.Shards.
func (l localOperations) Propose(ctx context.Context, id uint64, c shard.Command) error {
	l.awaitOpened(ctx, id)
	d, err := l.ledShard(id)
	if err != nil {
		return err
	}
	if c.Kind == shard.CmdBuckets && l.s.cfg.restore != nil {
		run, err := shard.ReadBuckets(c.Body)
		if err != nil {
			return err
		}
		return l.restoreBuckets(ctx, d, run)
	}
	return d.raft.ProposeInternal(ctx, c)
}

// LeaderEpoch implements governor.Shards.
func (l localOperations) LeaderEpoch(ctx context.Context, id uint64) (epoch uint64, err error) {
	d, err := l.ledShard(id)
	if err != nil {
		return 0, err
	}
	if err := l.barrier(ctx, d); err != nil {
		return 0, err
	}
	d.raft.View(func(m *shard.Machine) { epoch = m.Epoch() })
	return epoch, nil
}

// barrier returns once everything that was acknowledged before the call is applied here, and the shard is led here.
func (l localOperations) barrier(ctx context.Context, d *shardHost) error {
	passed := make(chan bool, 1)
	d.raft.Barrier(func(ok bool) { passed <- ok })
	select {
	case ok := <-passed:
		if !ok {
			return protocol.Errorf(protocol.StatusWrongShard, "shard %d does not lead here now", d.id)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Members implements governor.Groups.
func (l localOperations) Members(ctx context.Context, id uint64) (m governor.Membership, err error) {
	x, err := l.s.host.Members(ctx, id)
	if err != nil {
		return m, err
	}
	return governor.Membership{ConfigChange: x.ConfigChange, Voters: x.Voters, NonVotings: x.NonVotings, Removed: x.Removed}, nil
}

// AddNonVoting implements governor.Groups.
func (l localOperations) AddNonVoting(ctx context.Context, id, replica uint64, address string, configChange uint64) error {
	return l.s.host.AddNonVoting(ctx, id, replica, address, configChange)
}

// Promote implements governor.Groups.
func (l localOperations) Promote(ctx context.Context, id, replica, configChange uint64) error {
	return l.s.host.Promote(ctx, id, replica, configChange)
}

// Remove implements governor.Groups.
func (l localOperations) Remove(ctx context.Context, id, replica, configChange uint64) error {
	return l.s.host.Remove(ctx, id, replica, configChange)
}

// Transfer implements governor.Groups.
func (l localOperations) Transfer(ctx context.Context, id, replica, after uint64) error {
	state := l.s.meta.State()
	x, _ := state.Shard(id)
	// The engine drops all proposals while the leadership is on offer, for more than a second if nobody takes it.
	if r, ok := x.Replica(replica); ok && x.ID == id && r.Instance != l.s.instance {
		if err := l.s.member.Ping(ctx, r.Instance); err != nil {
			return err
		}
	}
	return l.s.host.Transfer(ctx, id, replica, after)
}

// Report implements cluster.Local.
func (l localOperations) Report() map[uint64]governor.ShardHealth {
	list := l.s.host.Report()
	out := make(map[uint64]governor.ShardHealth, len(list))
	for i := range list {
		r := &list[i]
		if !r.Running || r.Removed {
			continue
		}
		leader := r.Leader
		if leader == r.Replica && !r.Leading {
			leader = 0 // elected, and its own epoch not applied yet: it serves nobody
		}
		out[r.Shard] = governor.ShardHealth{Replica: r.Replica, Leader: leader, Term: r.Term, Applied: r.Applied, Members: r.ConfigChange}
	}
	return out
}

// LeaderMessage implements cluster.Local.
func (l localOperations) LeaderMessage(to, from uint64, msg []byte) {
	peerMessages(l).receive(l.s.shards.get(to), from, msg)
}
