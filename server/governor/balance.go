package governor

import (
	"cmp"
	"slices"
)

// replicasetLoad is a replicaset in the distribution of buckets.
type replicasetLoad struct {
	replicaset uint64
	weight     uint64 // 0: it is to have none
	shards     []shardLoad
}

// shardLoad is a shard and its number of buckets. Moving buckets count at their target.
type shardLoad struct {
	shard   uint64
	count   uint32
	surplus bool // it is to have none
}

// staying are the shards of a replicaset that are to have buckets.
func (r *replicasetLoad) staying() (list []shardLoad) {
	for _, x := range r.shards {
		if !x.surplus {
			list = append(list, x)
		}
	}
	return list
}

// bucketTargets returns the target number of buckets of each shard: replicasets in proportion to
// their weights, the staying shards of one evenly. Nil if no replicaset has a weight. Remainders go
// where they cause the fewest moves, so that each move brings all shards nearer to their targets.
func bucketTargets(total uint32, sets []replicasetLoad) map[uint64]uint32 {
	weights := uint64(0)
	for _, set := range sets {
		if len(set.staying()) > 0 {
			weights += set.weight
		}
	}
	if weights == 0 {
		return nil
	}
	var list []share
	for i := range sets {
		if set := &sets[i]; len(set.staying()) > 0 {
			floor := uint32(uint64(total) * set.weight / weights)
			list = append(list, share{id: set.replicaset, weight: set.weight, savedMoves: set.cost(floor) - set.cost(floor+1)})
		}
	}
	apportion(total, weights, list)
	result := make(map[uint64]uint32)
	for i := range sets {
		for _, p := range list {
			if p.id == sets[i].replicaset {
				for _, x := range sets[i].divide(p.buckets) {
					result[x.id] = x.buckets
				}
			}
		}
	}
	return result
}

// divide divides buckets evenly among the staying shards of a replicaset.
func (r *replicasetLoad) divide(buckets uint32) []share {
	var shards []share
	for _, x := range r.staying() {
		shards = append(shards, share{id: x.shard, weight: 1, savedMoves: int64(x.count)})
	}
	apportion(buckets, uint64(len(shards)), shards)
	return shards
}

// cost is how many buckets of staying shards come and go if the replicaset is to have this many.
func (r *replicasetLoad) cost(buckets uint32) (n int64) {
	staying := r.staying()
	for i, p := range r.divide(buckets) {
		d := int64(p.buckets) - int64(staying[i].count)
		n += max(d, -d)
	}
	return n
}

// share is a replicaset's or shard's part of the buckets.
type share struct {
	id         uint64
	weight     uint64
	savedMoves int64  // how many moves one bucket more saves
	buckets    uint32 // the target
}

// apportion divides by largest remainders. Ties go to the share that saves most moves, then to the
// lower id.
func apportion(total uint32, weights uint64, list []share) {
	left := total
	byRemainder := make([]*share, 0, len(list))
	for i := range list {
		p := &list[i]
		p.buckets = uint32(uint64(total) * p.weight / weights)
		left -= p.buckets
		if p.weight > 0 {
			byRemainder = append(byRemainder, p)
		}
	}
	slices.SortFunc(byRemainder, func(a, b *share) int {
		return cmp.Or(
			cmp.Compare(uint64(total)*b.weight%weights, uint64(total)*a.weight%weights),
			cmp.Compare(b.savedMoves, a.savedMoves),
			cmp.Compare(a.id, b.id),
		)
	})
	for _, p := range byRemainder[:min(int(left), len(byRemainder))] {
		p.buckets++
	}
}

// bucketFlow is a number of buckets to move from one shard to another.
type bucketFlow struct {
	from, to uint64
	count    uint32
}

// bucketFlows returns which shards give buckets to which so that each reaches its target: in pieces
// of at most piece buckets, at most pieces of them. The greatest surplus and the greatest deficit
// come first. Shards that usable rejects are left out.
func bucketFlows(
	sets []replicasetLoad, piece uint32, pieces int, usable func(shard uint64, gets bool) bool,
) []bucketFlow {
	total := uint32(0)
	for _, set := range sets {
		for _, x := range set.shards {
			total += x.count
		}
	}
	want := bucketTargets(total, sets)
	if want == nil {
		return nil
	}
	var donors, receivers []shardLoad // count: surplus, deficit
	for _, set := range sets {
		for _, x := range set.shards {
			switch to := want[x.shard]; {
			case x.count > to && usable(x.shard, false):
				donors = append(donors, shardLoad{shard: x.shard, count: x.count - to})
			case x.count < to && usable(x.shard, true):
				receivers = append(receivers, shardLoad{shard: x.shard, count: to - x.count})
			}
		}
	}
	var list []bucketFlow
	for len(list) < pieces {
		give, take := largest(donors), largest(receivers)
		if give == nil || take == nil {
			break
		}
		n := min(give.count, take.count, piece)
		give.count -= n
		take.count -= n
		list = append(list, bucketFlow{give.shard, take.shard, n})
	}
	return list
}

// largest is the shard with the highest count, of equals the lowest id; nil if all are zero.
func largest(list []shardLoad) *shardLoad {
	var best *shardLoad
	for i := range list {
		x := &list[i]
		if x.count > 0 && (best == nil || x.count > best.count || (x.count == best.count && x.shard < best.shard)) {
			best = x
		}
	}
	return best
}
