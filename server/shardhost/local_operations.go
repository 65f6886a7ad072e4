package shardhost

import (
	"context"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/shard"
)

// Local is what this instance does for the governor, wherever that runs: with the shards that are
// led here, and with the raft groups that it is a member of.
type Local struct{ *Hosting }

var _ cluster.Local = Local{}

// shard finds a shard here. What is not here may be elsewhere.
func (l Local) shard(id uint64) (*Shard, error) {
	if d := l.Shards.Get(id); d != nil {
		return d, nil
	}
	return nil, protocol.Errorf(protocol.StatusWrongShard, "shard %d does not run on this instance", id)
}

// ledShard finds a shard that is led here, as far as is known.
func (l Local) ledShard(id uint64) (*Shard, error) {
	d, err := l.shard(id)
	if err == nil && d.LedElsewhere() {
		return nil, protocol.Errorf(protocol.StatusWrongShard, "shard %d is not led on this instance", id)
	}
	return d, err
}

// openTimeout is how long a command waits for a new shard to be opened, and led, here.
const openTimeout = 500 * time.Millisecond

// awaitOpened waits for a shard that begins on this instance: the governor may be faster than
// followMap.
func (l Local) awaitOpened(ctx context.Context, id uint64) {
	x, ok := l.Meta.State().Shard(id)
	if r, here := x.On(l.instance); !ok || !here || x.Ready || !r.Founder || len(x.Replicas) > 1 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	t := time.NewTicker(2 * time.Millisecond)
	defer t.Stop()
	for d := l.Shards.Get(id); d == nil || !d.Leading(); d = l.Shards.Get(id) {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		case <-l.ctx.Done():
			return
		}
	}
}

// Propose implements governor.Shards.
func (l Local) Propose(ctx context.Context, id uint64, c shard.Command) error {
	l.awaitOpened(ctx, id)
	d, err := l.ledShard(id)
	if err != nil {
		return err
	}
	return d.replica.ProposeInternal(ctx, c)
}

// Registers implements governor.Shards.
func (l Local) Registers(ctx context.Context, id, node uint64) (at governor.Registers, err error) {
	d, err := l.ledShard(id)
	if err != nil {
		return at, err
	}
	if err := l.barrier(ctx, d); err != nil {
		return at, err
	}
	d.replica.View(func(m *shard.Machine) {
		at = governor.Registers{Epoch: m.Epoch(), Token: m.HighestToken()}
		at.Node, _ = m.Nodes().Contents(node)
	})
	return at, nil
}

// barrier returns once everything that was acknowledged before the call is applied here, and the
// shard is led here.
func (l Local) barrier(ctx context.Context, d *Shard) error {
	passed := make(chan bool, 1)
	d.replica.Barrier(func(ok bool) { passed <- ok })
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
func (l Local) Members(ctx context.Context, id uint64) (governor.Membership, error) {
	x, err := l.host.Members(ctx, id)
	return governor.Membership(x), err
}

// AddNonVoting implements governor.Groups.
func (l Local) AddNonVoting(ctx context.Context, id, replica uint64, address string, configChange uint64) error {
	return l.host.AddNonVoting(ctx, id, replica, address, configChange)
}

// Promote implements governor.Groups.
func (l Local) Promote(ctx context.Context, id, replica, configChange uint64) error {
	return l.host.Promote(ctx, id, replica, configChange)
}

// Remove implements governor.Groups.
func (l Local) Remove(ctx context.Context, id, replica, configChange uint64) error {
	return l.host.Remove(ctx, id, replica, configChange)
}

// Transfer implements governor.Groups.
func (l Local) Transfer(ctx context.Context, id, replica, after uint64) error {
	state := l.Meta.State()
	x, _ := state.Shard(id)
	// The engine drops all proposals while the leadership is on offer, for more than a second if
	// nobody takes it.
	if r, ok := x.Replica(replica); ok && x.ID == id && r.Instance != l.instance {
		if err := l.service.Ping(ctx, r.Instance); err != nil {
			return err
		}
	}
	return l.host.Transfer(ctx, id, replica, after)
}

// Report implements cluster.Local.
func (l Local) Report() map[uint64]governor.ShardReport {
	list := l.host.Report()
	out := make(map[uint64]governor.ShardReport, len(list))
	for i := range list {
		r := &list[i]
		if !r.Running || r.Removed {
			continue
		}
		leader := r.Leader
		if leader == r.Replica && !r.Leading {
			leader = 0 // elected, and its own epoch not applied yet: it serves nobody
		}
		x := governor.ShardReport{Replica: r.Replica, Leader: leader, Term: r.Term, Applied: r.Applied,
			Members: r.ConfigChange}
		if d := l.Shards.Get(r.Shard); d != nil && leader == r.Replica {
			x.Sizes = d.sizes.count(d.replica, l.Clock.Now())
		}
		out[r.Shard] = x
	}
	return out
}

// LeaderMessage implements cluster.Local.
func (l Local) LeaderMessage(to, from uint64, msg []byte) {
	peerMessages{l.Hosting}.receive(l.Shards.Get(to), from, msg)
}
