package governor

import (
	"testing"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestHandedOverIsOver: after a leadership was handed over, the last heartbeat of who had it does not count, however fresh; the heartbeat of who has it does, and so does an
// election after it, whoever wins.
func TestHandedOverIsOver(t *testing.T) {
	t.Parallel()
	x := meta.Shard{ID: 2, Replicas: []meta.Replica{{Instance: 1, Replica: 11}, {Instance: 2, Replica: 12}}}
	heard := func(instance, replica, leader, term uint64) map[uint64]Health {
		return map[uint64]Health{instance: {Shards: map[uint64]ShardHealth{2: {Replica: replica, Leader: leader, Term: term}}}}
	}
	p := NewProgress()
	v := View{Progress: p, Health: heard(1, 11, 11, 5)}
	if r, ok := v.leader(&x); !ok || r.Instance != 1 {
		t.Fatalf("before, %+v leads, %v", r, ok)
	}
	p.Done(&Step{Kind: TransferMaster, Shard: 2, Instance: 2, Replica: 12, Term: 5}, 0, 0, Answer{})
	if r, ok := v.leader(&x); ok {
		t.Errorf("%+v still leads by a heartbeat from before it handed over", r)
	}
	v.Health = heard(2, 12, 12, 6)
	if r, ok := v.leader(&x); !ok || r.Instance != 2 {
		t.Errorf("after it, %+v leads, %v", r, ok)
	}
	v.Health = heard(1, 11, 11, 7)
	if r, ok := v.leader(&x); !ok || r.Instance != 1 {
		t.Errorf("after an election, %+v leads, %v", r, ok)
	}
	p.Done(&Step{Kind: TransferMaster, Shard: 2, Instance: 2, Replica: 12, Term: 5}, 0, 0, Answer{}) // late
	if _, ok := v.leader(&x); !ok {
		t.Error("what was handed over long ago came after what is so now")
	}
}
