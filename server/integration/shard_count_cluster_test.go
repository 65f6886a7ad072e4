package integration

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// withShards reports whether the cluster of three works, and has this many data shards with their
// parts of the buckets.
func withShards(n int) func(s *meta.State) bool {
	return func(s *meta.State) bool {
		if !stable(3, 3)(s) || len(s.Shards()) != n {
			return false
		}
		counts := map[uint64]uint32{}
		for _, run := range s.Tiers()[0].Runs {
			counts[run.Shard] += run.Count
		}
		least, most := s.Tiers()[0].Buckets, uint32(0)
		for _, x := range s.Shards() {
			least, most = min(least, counts[x.ID]), max(most, counts[x.ID])
		}
		return most-least <= 1
	}
}

// setShards changes how many shards there are to be, by any instance that runs.
func (k *clusterKit) setShards(n uint32) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), eventLimit)
	defer cancel()
	if err := k.server(k.names()[0]).Governor.SetShards(ctx, 0, n); err != nil {
		k.t.Fatal(err)
	}
}

// killDuringMove kills an instance while buckets move, and starts it again: the one that governs,
// or another one.
func (k *clusterKit) killDuringMove(governs bool) {
	k.t.Helper()
	k.eventually("a move of buckets", func() bool {
		s := k.server(k.names()[0]).Meta.State()
		return len(s.Moves()) > 0 && k.governs() != ""
	})
	victim := k.governs()
	if !governs {
		names := slices.DeleteFunc(k.names(), func(n string) bool { return n == victim })
		victim = names[0]
	}
	s := k.server(k.names()[0]).Meta.State()
	k.t.Logf("%s is killed, with %d shards and moves %+v", victim, len(s.Shards()), s.Moves())
	k.kill(victim)
	k.must(victim)
}

// leftovers are the replicas on the disks of all instances that the map does not have.
func (k *clusterKit) leftovers() (list []string) {
	for _, n := range k.names() {
		s := k.server(n)
		for _, kept := range s.Host.StoredReplicas() {
			if _, ok := s.Meta.State().Shard(kept[0]); !ok && kept[0] != replica.MetaShard {
				list = append(list, fmt.Sprintf("%s: replica %d of shard %d", n, kept[1], kept[0]))
			}
		}
	}
	return list
}

// TestShardCountUnderLoad: one shard becomes three and then one again, while clients work. An
// instance is killed in between, and then the one that governs. Nobody who works sees more than a
// delay. What was removed is gone from all disks, and no shard's id comes again.
func TestShardCountUnderLoad(t *testing.T) {
	t.Parallel()
	buckets, sessions, names := moveSizes()
	k := newClusterKit(t, 3)
	k.change = func(_ string, c *server.Config) {
		c.Shards, c.Buckets, c.RTT, c.OfflineAfter = 1, buckets, 50*time.Millisecond, 5*time.Second
	}
	k.startAll("a", "b", "c")
	k.arrives("three instances that work", withShards(1))
	var addresses []string
	for _, n := range k.names() {
		addresses = append(addresses, k.server(n).Addr())
	}
	workload := newMoveWorkload(t, addresses, 4, sessions, names)
	workload.begin()
	workload.progress(100)
	last := uint64(0)
	for _, x := range []struct {
		shards  int
		governs bool
	}{{3, false}, {1, true}} {
		began := time.Now()
		k.setShards(uint32(x.shards))
		k.killDuringMove(x.governs)
		k.arrives(fmt.Sprintf("%d shards", x.shards), withShards(x.shards))
		t.Logf("%d shards after %v", x.shards, time.Since(began).Round(time.Millisecond))
		workload.progress(100)
		for _, y := range k.server("a").Meta.State().Shards() {
			last = max(last, y.ID)
		}
	}
	k.eventually("nothing left of removed shards", func() bool { return len(k.leftovers()) == 0 })
	k.setShards(2)
	k.arrives("two shards", withShards(2))
	if list := k.server("a").Meta.State().Shards(); list[1].ID <= last {
		t.Errorf("the new shard has id %d; %d was given out before", list[1].ID, last)
	}
	workload.progress(100)
	workload.finish()
}
