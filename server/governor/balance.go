package governor

import (
	"cmp"
	"slices"
)

// owners is a replicaset as the distribution of buckets sees it.
type replicasetLoad struct {
	replicaset uint64
	weight     uint64 // 0: it is to have none
	shards     []shardLoad
}

// owner is a shard and how many buckets it has, those on their way counted where they go.
type shardLoad struct {
	shard uint64
	count uint32
}

// targets says how many buckets each shard is to have: replicasets in proportion to their weights, the shards of one evenly. Nil when no replicaset has a
// weight. What is left by rounding goes where it asks for the fewest moves: so each move brings all shards nearer to their targets, also if these change by it.
func bucketTargets(total uint32, sets []replicasetLoad) map[uint64]uint32 {
	weights := uint64(0)
	for _, set := range sets {
		if len(set.shards) > 0 {
			weights += set.weight
		}
	}
	if weights == 0 {
		return nil
	}
	var list []share
	for i := range sets {
		if set := &sets[i]; len(set.shards) > 0 {
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

// divide divides buckets evenly among the shards of a replicaset.
func (o *replicasetLoad) divide(buckets uint32) []share {
	var shards []share
	for _, x := range o.shards {
		shards = append(shards, share{id: x.shard, weight: 1, savedMoves: int64(x.count)})
	}
	apportion(buckets, uint64(len(shards)), shards)
	return shards
}

// cost is how many buckets come and go if the replicaset is to have so many.
func (o *replicasetLoad) cost(buckets uint32) (n int64) {
	for i, p := range o.divide(buckets) {
		d := int64(p.buckets) - int64(o.shards[i].count)
		n += max(d, -d)
	}
	return n
}

// portion is one of those among whom buckets are divided.
type share struct {
	id         uint64
	weight     uint64
	savedMoves int64  // the more, the fewer moves if it has one bucket more
	buckets    uint32 // what it is to have
}

// apportion divides by largest remainders; of equal ones, the one goes first that saves most, then the lower id.
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

// flow is that a shard is to give buckets to another.
type bucketFlow struct {
	from, to uint64
	count    uint32
}

// flows says who gives to whom so that each comes to its target, in pieces of at most piece, at most so many pieces. Who has the most too many gives first,
// to whom the most are missing; shards that usable says no to are passed over.
func bucketFlows(sets []replicasetLoad, piece uint32, pieces int, usable func(shard uint64, gets bool) bool) []bucketFlow {
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
	var donors, receivers []shardLoad // count: how many too many, how many missing
	for _, set := range sets {
		for _, x := range set.shards {
			switch to := want[x.shard]; {
			case x.count > to && usable(x.shard, false):
				donors = append(donors, shardLoad{x.shard, x.count - to})
			case x.count < to && usable(x.shard, true):
				receivers = append(receivers, shardLoad{x.shard, to - x.count})
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

// most is the one with the highest count, of equals the lowest id; nil when all are at zero.
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
