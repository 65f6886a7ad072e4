package client

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestOwnersOfBuckets compares a tier, and what single owners learned by refusals make of it, with
// a list of the owner of each bucket.
func TestOwnersOfBuckets(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		m := &protocol.MapReply{Version: 1, Tiers: []protocol.MapTier{{}}}
		for shard := range uint64(4) {
			m.Shards = append(m.Shards, protocol.MapShard{ID: shard + 1})
		}
		tier := &m.Tiers[0]
		var want []uint64
		for range 1 + random.IntN(12) {
			run := protocol.MapRun{Count: random.Uint32N(5), Shard: 1 + random.Uint64N(4)}
			tier.Runs = append(tier.Runs, run)
			want = append(want, slices.Repeat([]uint64{run.Shard}, int(run.Count))...)
		}
		if tier.Buckets = uint32(len(want)); tier.Buckets == 0 {
			continue
		}
		r, err := newRouteTable(m)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			for bucket := range tier.Buckets + 2 {
				owner := uint64(0)
				if bucket < tier.Buckets {
					owner = want[bucket]
				}
				if got := r.owner(0, bucket); got != owner {
					t.Fatalf("seed %d: bucket %d is of shard %d, want %d", seed, bucket, got, owner)
				}
			}
			bucket, shard := random.Uint32N(tier.Buckets), 1+random.Uint64N(4)
			r = r.withOwner(0, bucket, shard, 2)
			want[bucket] = shard
			if place := r.tiers[0].place; len(slices.Compact(slices.Clone(place))) != len(place) {
				t.Fatalf("seed %d: two runs in a row have one owner", seed)
			}
		}
	}
}

// TestTiersByID: tiers are found by their ids, which may leave gaps and come in any order. A start
// takes the tier of a cluster that has one without asking for the node first.
func TestTiersByID(t *testing.T) {
	for _, ids := range [][]uint8{{}, {0}, {3}, {255}, {0, 1}, {5, 2}, {2, 0, 255}} {
		m := &protocol.MapReply{Version: 1, Shards: []protocol.MapShard{{ID: 1}}}
		for _, id := range ids {
			n := 1 + uint32(id)
			m.Tiers = append(m.Tiers, protocol.MapTier{ID: id, Buckets: n, Runs: []protocol.MapRun{{Count: n, Shard: 1}}})
		}
		r, err := newRouteTable(m)
		if err != nil {
			t.Fatal(err)
		}
		for id := range 256 {
			want := slices.Contains(ids, uint8(id))
			if own := r.tier(uint8(id)); (own != nil) != want || want && own.buckets != 1+uint32(id) {
				t.Errorf("tiers %v: tier %d is %+v", ids, id, own)
			}
		}
		if id, own := r.onlyTier(); (own != nil) != (len(ids) == 1) || own != nil && id != ids[0] {
			t.Errorf("tiers %v: the only one is %d, %+v", ids, id, own)
		}
	}
}
