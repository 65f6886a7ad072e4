package cluster

import (
	"testing"
	"time"
)

func TestHealth(t *testing.T) {
	now := time.Duration(0)
	h := newHealthTable(func() time.Duration { return now })
	beat := func(incarnation, seq, applied uint64) {
		now += time.Second
		h.heard(&heartbeat{Instance: 5, Incarnation: incarnation, Seq: seq, Shards: []shardHeartbeat{{Shard: 2, Applied: applied}}})
	}
	applied := func() uint64 { return h.snapshot()[5].Shards[2].Applied }
	beat(1, 1, 10)
	beat(1, 3, 30)
	kept := h.snapshot()
	beat(1, 2, 20) // overtaken
	if applied() != 30 || h.snapshot()[5].Heard != 2*time.Second {
		t.Errorf("an overtaken heartbeat counts: %+v", h.snapshot()[5])
	}
	beat(2, 1, 5) // the process was started again
	if applied() != 5 {
		t.Error("a new process is not heard")
	}
	beat(1, 9, 90) // late, of the old one
	beat(0, 1, 1)  // of one that does not know yet who it is
	if applied() != 5 || h.snapshot()[5].Incarnation != 2 {
		t.Error("an old process is heard")
	}
	if kept[5].Shards[2].Applied != 30 {
		t.Error("what a reader keeps has changed")
	}
	h.forget(func(id uint64) bool { return id != 5 })
	if len(h.snapshot()) != 0 {
		t.Error("not forgotten")
	}
	beat(1, 1, 1)
	if applied() != 1 {
		t.Error("who was forgotten is not heard anew")
	}
}
