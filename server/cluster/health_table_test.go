package cluster

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

func TestHealth(t *testing.T) {
	now := time.Duration(0)
	h := newHealthTable(func() time.Duration { return now })
	beat := func(incarnation, seq, applied uint64) {
		now += time.Second
		h.received(&heartbeat{Instance: 5, Incarnation: incarnation, Seq: seq, Shards: []shardHeartbeat{{Shard: 2, Applied: applied}}})
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
	now += governor.FreshLimit
	beat(2, 0, 6) // started again, and not registered since
	if applied() != 6 {
		t.Error("a new process with the incarnation of the last one is not heard")
	}
	if kept[5].Shards[2].Applied != 30 {
		t.Error("what a reader keeps has changed")
	}
	h.retain(func(id uint64) bool { return id != 5 })
	if len(h.snapshot()) != 0 {
		t.Error("not forgotten")
	}
	beat(1, 1, 1)
	if applied() != 1 {
		t.Error("a forgotten instance is not heard again")
	}
}

// TestHealthDiffers: a governor is woken by a heartbeat that says something new, and by no other
// one.
func TestHealthDiffers(t *testing.T) {
	now := time.Duration(0)
	h := newHealthTable(func() time.Duration { return now })
	seq := uint64(0)
	usual := shardHeartbeat{Shard: 2, Replica: 7, Leader: 7, Term: 3, Members: 4}
	changed := func(pause time.Duration, incarnation uint64, shards ...shardHeartbeat) bool {
		now += pause
		seq++
		changed := h.Changed()
		h.received(&heartbeat{Instance: 5, Incarnation: incarnation, Seq: seq, Shards: shards})
		select {
		case <-changed:
			return true
		default:
			return false
		}
	}
	applied, replica, leader, term, members := usual, usual, usual, usual, usual
	applied.Applied, replica.Replica, leader.Leader, term.Term, members.Members = 99, 8, 0, 4, 5
	for _, x := range []struct {
		what  string
		pause time.Duration
		now   []shardHeartbeat
		want  bool
	}{
		{"the same", HeartbeatPeriod, []shardHeartbeat{usual}, false},
		{"how far a replica is", HeartbeatPeriod, []shardHeartbeat{applied}, false},
		{"another replica", HeartbeatPeriod, []shardHeartbeat{replica}, true},
		{"no leader", HeartbeatPeriod, []shardHeartbeat{leader}, true},
		{"another term", HeartbeatPeriod, []shardHeartbeat{term}, true},
		{"other members", HeartbeatPeriod, []shardHeartbeat{members}, true},
		{"one shard more", HeartbeatPeriod, []shardHeartbeat{usual, {Shard: 3}}, true},
		{"one shard less", HeartbeatPeriod, nil, true},
		{"the same, after a silence", governor.FreshLimit + 1, []shardHeartbeat{usual}, true},
	} {
		changed(HeartbeatPeriod, 1, usual)
		if got := changed(x.pause, 1, x.now...); got != x.want {
			t.Errorf("%s is changed: %v, want %v", x.what, got, x.want)
		}
	}
	if !changed(HeartbeatPeriod, 2, usual) {
		t.Error("another process is no changed")
	}
}

// TestHeartbeatSoon: what has changed is reported soon, and however much changes, with a pause
// between two heartbeats.
func TestHeartbeatSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := threeMap(t)
		began := time.Now()
		m := New(Config{Transport: &fakeTransport{}, Local: &fakeLocal{}, State: func() *meta.State { return state },
			Refusals: func() []string { return nil }, Now: func() time.Duration { return time.Since(began) }})
		m.SetInstance(1)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		running.Go(func() { m.Run(ctx) })
		reported := uint64(0)
		beats := func(d time.Duration) uint64 {
			time.Sleep(d)
			synctest.Wait()
			before := reported
			reported = m.seq.Load()
			return reported - before
		}
		if n := beats(10*HeartbeatPeriod + 1); n != 11 {
			t.Errorf("%d heartbeats in ten periods, want 11", n)
		}
		beats(heartbeatGap)
		for range 3 {
			m.HeartbeatSoon()
		}
		if n := beats(0); n != 1 {
			t.Errorf("%d heartbeats as soon as something changed, want 1", n)
		}
		m.HeartbeatSoon()
		if n := beats(heartbeatGap - 1); n != 0 {
			t.Errorf("%d heartbeats right after another one, want none", n)
		}
		if n := beats(1); n != 1 {
			t.Errorf("%d heartbeats after the gap, want 1", n)
		}
		for range 100 {
			m.HeartbeatSoon()
			time.Sleep(heartbeatGap / 10)
		}
		if n := beats(0); n < 9 || n > 11 {
			t.Errorf("%d heartbeats while something changes all the time for ten gaps", n)
		}
	})
}
