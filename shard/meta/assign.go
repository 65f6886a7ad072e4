package meta

import (
	"cmp"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// Share is how many buckets a shard is to own.
type Share struct {
	Shard   uint64
	Buckets uint32
}

// Shares says how the buckets of a tier are to be spread: over its ready replicasets with shards,
// in proportion to their weights, and evenly over the shards of each that stay. Remainders go to
// the largest fractions. In order of replicaset and shard; empty if no replicaset may have buckets.
func (s *State) Shares(tier uint8) []Share {
	t, ok := s.Tier(tier)
	if !ok {
		return nil
	}
	type part struct {
		shards    []uint64
		buckets   uint64
		remainder uint64
	}
	var parts []part
	var weights []uint64
	total := uint64(0)
	for _, set := range s.replicasets {
		if set.Tier != tier || set.Phase != ReplicasetReady || set.Weight == 0 {
			continue
		}
		var shards []uint64
		for _, x := range s.ShardsOf(set.ID) {
			if !x.Surplus(s) {
				shards = append(shards, x.ID)
			}
		}
		if len(shards) > 0 {
			parts = append(parts, part{shards: shards})
			weights = append(weights, uint64(set.Weight))
			total += uint64(set.Weight)
		}
	}
	if len(parts) == 0 {
		return nil
	}
	left := uint64(t.Buckets)
	order := make([]int, len(parts))
	for i := range parts {
		product := uint64(t.Buckets) * weights[i]
		parts[i].buckets, parts[i].remainder = product/total, product%total
		left -= parts[i].buckets
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(parts[b].remainder, parts[a].remainder) })
	for i := range left { // fewer than there are parts
		parts[order[i]].buckets++
	}
	var shares []Share
	for _, p := range parts {
		for _, run := range divideBuckets(uint32(p.buckets), p.shards, FirstEpoch) {
			shares = append(shares, Share{run.Shard, run.Count})
		}
	}
	return shares
}

// divideBuckets divides buckets among shards in runs whose lengths differ by at most one. A run may
// be empty.
func divideBuckets(buckets uint32, shards []uint64, epoch uint64) []Run {
	runs := make([]Run, 0, len(shards))
	n := uint32(len(shards))
	first := uint32(0)
	for i, shard := range shards {
		count := buckets / n
		if uint32(i) < buckets%n {
			count++
		}
		runs = append(runs, Run{First: first, Count: count, Shard: shard, Epoch: epoch})
		first += count
	}
	return runs
}

// BucketsAssign assigns the buckets of a tier, once, as Shares says. Its shards must activate them
// before they are ready. ABORTED until a replicaset may have buckets. PRECONDITION_FAILED if the
// tier has none, or is to be restored: see TierRestored.
type BucketsAssign struct {
	Tier uint8
}

func (*BucketsAssign) kind() Kind { return KindBucketsAssign }

func (c *BucketsAssign) fields(f *varint.Fields) { varint.Byte(f, &c.Tier) }

func (c *BucketsAssign) apply(s *State) Result {
	t, ok := s.Tier(c.Tier)
	switch {
	case !ok:
		return refuse(protocol.StatusNotFound, "there is no tier %d", c.Tier)
	case t.Buckets == 0:
		return refuse(protocol.StatusPreconditionFailed, "tier %s has no buckets", t.Name)
	case t.Bootstrapped:
		return Result{Revision: unchanged}
	case t.ToBeRestored():
		return t.refuseUnrestored()
	}
	var runs []Run
	first := uint32(0)
	for _, share := range s.Shares(t.ID) {
		if share.Buckets > 0 {
			runs = append(runs, Run{First: first, Count: share.Buckets, Shard: share.Shard, Epoch: FirstEpoch})
			first += share.Buckets
		}
	}
	if len(runs) == 0 {
		return refuse(protocol.StatusAborted, "no replicaset of tier %s is ready for buckets yet", t.Name)
	}
	t.assign(s, runs)
	return Result{}
}

// assign gives the buckets of a tier their first owners.
func (t *Tier) assign(s *State, runs []Run) {
	t.Runs, t.Bootstrapped = runs, true
	s.putTier(*t)
	s.shards = slices.Clone(s.shards)
	for i := range s.shards {
		if s.shards[i].Tier == t.ID {
			s.shards[i].Revision = s.revision // commands that name an older revision are refused
		}
	}
	s.mapVersion = s.revision
}
