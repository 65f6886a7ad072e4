package client

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/signalbox-dev/signalbox/protocol"
)

// routeTable is the cluster map in the form that requests are routed by, with owners of buckets
// that are newer than the map. It is never changed.
type routeTable struct {
	version   uint64
	reply     *protocol.MapReply
	tiers     []*tier // by id; nil: there is none of that id
	instances map[uint64]string
	byShard   map[uint64]*shardRoute // by shard

	// The highest version of a map of which single owners were learned by refusals; 0: none was.
	ownersVersion uint64
}

// shardRoute says where a shard is served. The master is what the map said, and then what instances
// announced since: it changes without a new map.
type shardRoute struct {
	shard     uint64
	tier      uint8                     // of its buckets
	replicas  []uint64                  // instances
	master    atomic.Uint64             // instance, 0: not known
	connector atomic.Pointer[connector] // to the master, where one is known
	lastWrite *lastWrite                // of this client; all maps share it
	// raft term since which the master is it, as far as somebody said; 0: nobody did. Guarded by
	// cluster.mu
	term uint64
}

// tier says who owns the buckets of a tier. A process may have thousands of clients, so it is six
// bytes for each run of buckets with one owner, in which the collector finds no pointers.
//
// Invariant: first begins with 0 and rises, place is as long, and its values are below that of
// owners.
type tier struct {
	buckets    uint32
	first      []uint32 // of each run: its first bucket
	place      []uint16 // of each run: the place of its owner in owners
	owners     []bucketOwner
	someBucket map[uint64]uint32 // shard -> one of its buckets
	shards     []uint64          // shards, in order of id
}

type bucketOwner struct {
	shard uint64
	route *shardRoute // nil: the map does not have the shard
}

// tier is the tier of an id, or nil.
func (r *routeTable) tier(id uint8) *tier {
	if int(id) < len(r.tiers) {
		return r.tiers[id]
	}
	return nil
}

// owner of a bucket; shard 0 is unknown. The tier may be nil.
func (t *tier) owner(bucket uint32) bucketOwner {
	switch {
	case t == nil || bucket >= t.buckets:
		return bucketOwner{}
	case len(t.owners) == 1:
		return t.owners[0]
	}
	return t.owners[t.place[t.run(bucket)]]
}

func (t *tier) run(bucket uint32) int {
	i, begins := slices.BinarySearch(t.first, bucket)
	if !begins {
		i--
	}
	return i
}

// add appends buckets with one owner.
func (t *tier) add(first uint32, place uint16) {
	if n := len(t.place); n == 0 || t.place[n-1] != place {
		t.first, t.place = append(t.first, first), append(t.place, place)
	}
}

// newRouteTable checks a map; a server may send anything.
func newRouteTable(m *protocol.MapReply) (*routeTable, error) {
	r := &routeTable{version: m.Version, reply: m,
		instances: make(map[uint64]string), byShard: make(map[uint64]*shardRoute)}
	for _, i := range m.Instances {
		r.instances[i.ID] = i.Address
	}
	for _, s := range m.Shards {
		w := &shardRoute{shard: s.ID, replicas: s.Replicas, term: s.Term, lastWrite: new(lastWrite)}
		w.master.Store(s.Master)
		r.byShard[s.ID] = w
	}
	for _, t := range m.Tiers {
		if t.Buckets == 0 || t.Buckets > 1<<16 {
			return nil, fmt.Errorf("cluster map gives tier %d %d buckets; there are 1 to 65536", t.ID, t.Buckets)
		}
		own := &tier{buckets: t.Buckets, someBucket: make(map[uint64]uint32)}
		places := make(map[uint64]uint16)
		next := uint32(0) // bucket
		for _, run := range t.Runs {
			if uint64(next)+uint64(run.Count) > uint64(t.Buckets) {
				return nil, fmt.Errorf("cluster map gives tier %d more than its %d buckets", t.ID, t.Buckets)
			}
			place, seen := places[run.Shard]
			if !seen && run.Count > 0 {
				place = uint16(len(own.owners)) // there are no more than buckets
				places[run.Shard] = place
				own.owners = append(own.owners, bucketOwner{run.Shard, r.byShard[run.Shard]})
				own.someBucket[run.Shard] = next
				own.shards = append(own.shards, run.Shard)
			}
			if w := r.byShard[run.Shard]; w != nil {
				w.tier = t.ID
			}
			if run.Count > 0 {
				own.add(next, place)
				next += run.Count
			}
		}
		if next != t.Buckets {
			return nil, fmt.Errorf("cluster map leaves buckets of tier %d without a shard", t.ID)
		}
		slices.Sort(own.shards)
		for len(r.tiers) <= int(t.ID) {
			r.tiers = append(r.tiers, nil)
		}
		r.tiers[t.ID] = own
	}
	return r, nil
}

// withOwner is the table with another owner of one bucket, learned by a refusal under a newer map;
// nil if it has no such bucket or shard.
func (r *routeTable) withOwner(tier uint8, bucket uint32, shard, version uint64) *routeTable {
	t, w := r.tier(tier), r.byShard[shard]
	if t == nil || bucket >= t.buckets || w == nil {
		return nil
	}
	own := *t
	place := slices.IndexFunc(t.owners, func(o bucketOwner) bool { return o.shard == shard })
	if place < 0 {
		place, own.owners = len(t.owners), append(slices.Clone(t.owners), bucketOwner{shard, w})
	}
	if place > math.MaxUint16 {
		return nil
	}
	own.first, own.place = nil, nil
	at := t.run(bucket)
	for i, first := range t.first {
		if i != at {
			own.add(first, t.place[i])
			continue
		}
		if first < bucket {
			own.add(first, t.place[i])
		}
		own.add(bucket, uint16(place))
		if behind := bucket + 1; behind < t.buckets && t.run(behind) == at {
			own.add(behind, t.place[i])
		}
	}
	next := *r
	next.tiers, next.ownersVersion = slices.Clone(r.tiers), version
	next.tiers[tier] = &own
	return &next
}

// onlyTier is the tier of a cluster that has one; nil of one that has several, or none yet.
func (r *routeTable) onlyTier() (id uint8, t *tier) {
	if r == nil {
		return 0, nil
	}
	for i, other := range r.tiers {
		switch {
		case other == nil:
		case t != nil:
			return 0, nil
		default:
			id, t = uint8(i), other
		}
	}
	if t == nil || len(t.shards) == 0 {
		return 0, nil
	}
	return id, t
}

// forBucket is the route of a bucket's shard, or nil.
func (r *routeTable) forBucket(tier uint8, bucket uint32) *shardRoute {
	return r.tier(tier).owner(bucket).route
}

// forShard is the route of a shard, or nil. It is found soonest if the shard owns the bucket.
func (r *routeTable) forShard(shard uint64, tier uint8, bucket uint32) *shardRoute {
	if w := r.forBucket(tier, bucket); w != nil && w.shard == shard {
		return w
	}
	return r.byShard[shard]
}

// owner is the shard of a bucket; 0 is unknown.
func (r *routeTable) owner(tier uint8, bucket uint32) uint64 {
	return r.tier(tier).owner(bucket).shard
}

// leaseMoved says that the shard of a route no longer owns the bucket, or has no replica where the
// route leads: events of the lease come from elsewhere. A leader that the map does not list as a
// replica is asked all the same, and reports them.
func (r *routeTable) leaseMoved(route requestRoute, tier uint8, bucket uint32) bool {
	owner := r.tier(tier).owner(bucket)
	if owner.shard == 0 || owner.shard != route.shard {
		return owner.shard != 0
	}
	w := owner.route
	return w != nil && w.master.Load() != route.cn.instance && !slices.Contains(w.replicas, route.cn.instance)
}

// changed says whether events about a bucket may come from somewhere else by now.
func (r *routeTable) changed(route requestRoute, tier uint8, bucket uint32) bool {
	w := r.forBucket(tier, bucket)
	return w == nil || w.shard != route.shard || w.master.Load() != route.cn.instance
}
