package governor

import (
	"context"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestTransferEndsOldLeadership: after a leadership was transferred, the last heartbeat of the
// former leader does not count, however fresh. That of the new leader does, and so does any
// election after it.
func TestTransferEndsOldLeadership(t *testing.T) {
	t.Parallel()
	x := meta.Shard{ID: 2, Replicas: []meta.Replica{{Instance: 1, Replica: 11}, {Instance: 2, Replica: 12}}}
	heard := func(instance, replica, leader, term uint64) map[uint64]Heartbeat {
		return map[uint64]Heartbeat{instance: {Shards: map[uint64]ShardReport{2: {Replica: replica, Leader: leader, Term: term}}}}
	}
	p := NewProgress()
	v := View{Progress: p, Health: heard(1, 11, 11, 5)}
	if r, ok := v.leader(&x); !ok || r.Instance != 1 {
		t.Fatalf("before, %+v leads, %v", r, ok)
	}
	p.Done(&Step{Kind: TransferLeader, Shard: 2, Instance: 2, Replica: 12, Term: 5}, 0, 0, Answer{})
	if r, ok := v.leader(&x); ok {
		t.Errorf("%+v still leads by a heartbeat from before the transfer", r)
	}
	v.Health = heard(2, 12, 12, 6)
	if r, ok := v.leader(&x); !ok || r.Instance != 2 {
		t.Errorf("after it, %+v leads, %v", r, ok)
	}
	v.Health = heard(1, 11, 11, 7)
	if r, ok := v.leader(&x); !ok || r.Instance != 1 {
		t.Errorf("after an election, %+v leads, %v", r, ok)
	}
	p.Done(&Step{Kind: TransferLeader, Shard: 2, Instance: 2, Replica: 12, Term: 5}, 0, 0, Answer{}) // late
	if _, ok := v.leader(&x); !ok {
		t.Error("what was transferred long ago came after what is so now")
	}
}

// staleLeader is the group of a shard whose leadership is to go to a replica that believes that it
// has it already, in an older term: it was cut off when another was elected.
type staleLeader struct {
	Groups
	term uint64
}

func (b staleLeader) Transfer(_ context.Context, _, _, after uint64) error {
	if b.term <= after {
		return protocol.Errorf(protocol.StatusUnavailable, "no term after %d is known here", after)
	}
	return nil
}

// TestTransferToStaleLeader: who believes to lead in an older term is not told that it was handed
// the shard. Taken for the end of the later leadership, that would make the leader one that nobody
// hears any more, for as long as it leads.
func TestTransferToStaleLeader(t *testing.T) {
	t.Parallel()
	for belief, want := range map[uint64]protocol.Status{
		4: protocol.StatusUnavailable, 5: protocol.StatusUnavailable, 6: protocol.StatusOK,
	} {
		c := newCluster(8, 1, 2)
		g := New(Config{Meta: c, Shards: clusterShards{c}, Groups: staleLeader{term: belief}, Instances: c, Clock: c})
		x, _ := c.machine.Shard(2)
		s := Step{Kind: TransferLeader, Shard: x.ID, Instance: targetMaster(&x), Replica: x.Replicas[0].Replica, Term: 5}
		if _, err := g.execute(t.Context(), &s); protocol.StatusOf(err) != want {
			t.Errorf("the leadership of term 5 handed to the leader of term %d: %v, want %v", belief, err, want)
		}
	}
}
