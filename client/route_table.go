package client

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/signalbox-dev/signalbox/protocol"
)

// routeTable is the cluster map in the form that requests are routed by. It is never changed.
type routeTable struct {
	version   uint64
	reply     *protocol.MapReply
	tiers     map[uint8]*tier
	shards    map[uint64]protocol.MapShard
	instances map[uint64]string
	byShard   map[uint64]*shardRoute // by shard
}

// shardRoute says where a shard is served. The master is what the map said, and then what instances
// announced since: it changes without a new map.
type shardRoute struct {
	shard     uint64
	replicas  []uint64                  // instances
	master    atomic.Uint64             // instance, 0: not known
	connector atomic.Pointer[connector] // to the master, where one is known
	lastWrite *lastWrite                // of this client; all maps share it
	// raft term since which the master is it, as far as somebody said; 0: nobody did. Guarded by
	// cluster.mu
	term uint64
}

type tier struct {
	buckets    uint32
	shardOf    []uint64          // by bucket
	byBucket   []*shardRoute     // by bucket; nil of a shard that the map does not have
	someBucket map[uint64]uint32 // shard -> one of its buckets
	shards     []uint64          // shards, in order of id
}

// newRouteTable checks a map; a server may send anything.
func newRouteTable(m *protocol.MapReply) (*routeTable, error) {
	r := &routeTable{version: m.Version, reply: m, tiers: make(map[uint8]*tier),
		shards: make(map[uint64]protocol.MapShard), instances: make(map[uint64]string), byShard: make(map[uint64]*shardRoute)}
	for _, i := range m.Instances {
		r.instances[i.ID] = i.Address
	}
	for _, s := range m.Shards {
		r.shards[s.ID] = s
		w := &shardRoute{shard: s.ID, replicas: s.Replicas, term: s.Term, lastWrite: new(lastWrite)}
		w.master.Store(s.Master)
		r.byShard[s.ID] = w
	}
	for _, t := range m.Tiers {
		if t.Buckets == 0 || t.Buckets > 1<<16 {
			return nil, fmt.Errorf("cluster map gives tier %d %d buckets; there are 1 to 65536", t.ID, t.Buckets)
		}
		own := &tier{buckets: t.Buckets, shardOf: make([]uint64, 0, t.Buckets),
			byBucket: make([]*shardRoute, 0, t.Buckets), someBucket: make(map[uint64]uint32)}
		for _, run := range t.Runs {
			if uint64(len(own.shardOf))+uint64(run.Count) > uint64(t.Buckets) {
				return nil, fmt.Errorf("cluster map gives tier %d more than its %d buckets", t.ID, t.Buckets)
			}
			if _, seen := own.someBucket[run.Shard]; !seen && run.Count > 0 {
				own.someBucket[run.Shard] = uint32(len(own.shardOf))
				own.shards = append(own.shards, run.Shard)
			}
			for range run.Count {
				own.shardOf = append(own.shardOf, run.Shard)
				own.byBucket = append(own.byBucket, r.byShard[run.Shard])
			}
		}
		if len(own.shardOf) != int(t.Buckets) {
			return nil, fmt.Errorf("cluster map leaves buckets of tier %d without a shard", t.ID)
		}
		slices.Sort(own.shards)
		r.tiers[t.ID] = own
	}
	return r, nil
}

// forBucket is the route of a bucket's shard, or nil.
func (r *routeTable) forBucket(tier uint8, bucket uint32) *shardRoute {
	t := r.tiers[tier]
	if t == nil || bucket >= uint32(len(t.byBucket)) {
		return nil
	}
	return t.byBucket[bucket]
}

// owner is the shard of a bucket; 0 is unknown.
func (r *routeTable) owner(tier uint8, bucket uint32) uint64 {
	t := r.tiers[tier]
	if t == nil || bucket >= uint32(len(t.shardOf)) {
		return 0
	}
	return t.shardOf[bucket]
}

// leaseMoved says that the shard of a route no longer owns the bucket, or has no replica where the
// route leads: events of the lease come from elsewhere.
func (r *routeTable) leaseMoved(route requestRoute, tier uint8, bucket uint32) bool {
	owner := r.owner(tier, bucket)
	return owner != 0 && (owner != route.shard || !slices.Contains(r.shards[owner].Replicas, route.cn.instance))
}

// changed says whether events about a bucket may come from somewhere else by now.
func (r *routeTable) changed(route requestRoute, tier uint8, bucket uint32) bool {
	w := r.forBucket(tier, bucket)
	return w == nil || w.shard != route.shard || w.master.Load() != route.cn.instance
}
