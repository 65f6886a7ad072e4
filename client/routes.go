package client

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/signalbox-dev/signalbox/protocol"
)

// routes is the cluster map in the form requests are routed by. It is never changed.
type routes struct {
	version   uint64
	reply     *protocol.MapReply
	tiers     map[uint8]*tier
	shards    map[uint64]protocol.MapShard
	instances map[uint64]string
	ways      map[uint64]*way // by shard
}

// way is where a shard is served. The master is what the map said, and then what instances said since: it changes without a new map.
type way struct {
	shard    uint64
	replicas []uint64             // instances
	master   atomic.Uint64        // instance, 0: not known
	link     atomic.Pointer[link] // to the master, where one is known
	writes   *written             // of this client; all maps share it
	term     uint64               // raft term since which the master is it, as far as somebody said; 0: nobody did. Guarded by client.mu
}

type tier struct {
	buckets uint32
	shard   []uint64          // by bucket
	ways    []*way            // by bucket; nil of a shard that the map does not have
	some    map[uint64]uint32 // shard -> one of its buckets
	list    []uint64          // shards, in order of id
}

// newRoutes checks a map; a server may send anything.
func newRoutes(m *protocol.MapReply) (*routes, error) {
	r := &routes{version: m.Version, reply: m, tiers: make(map[uint8]*tier), shards: make(map[uint64]protocol.MapShard), instances: make(map[uint64]string), ways: make(map[uint64]*way)}
	for _, i := range m.Instances {
		r.instances[i.ID] = i.Address
	}
	for _, s := range m.Shards {
		r.shards[s.ID] = s
		w := &way{shard: s.ID, replicas: s.Replicas, term: s.Term, writes: new(written)}
		w.master.Store(s.Master)
		r.ways[s.ID] = w
	}
	for _, t := range m.Tiers {
		if t.Buckets == 0 || t.Buckets > 1<<16 {
			return nil, fmt.Errorf("cluster map gives tier %d %d buckets; there are 1 to 65536", t.ID, t.Buckets)
		}
		own := &tier{buckets: t.Buckets, shard: make([]uint64, 0, t.Buckets), ways: make([]*way, 0, t.Buckets), some: make(map[uint64]uint32)}
		for _, run := range t.Runs {
			if uint64(len(own.shard))+uint64(run.Count) > uint64(t.Buckets) {
				return nil, fmt.Errorf("cluster map gives tier %d more than its %d buckets", t.ID, t.Buckets)
			}
			if _, seen := own.some[run.Shard]; !seen && run.Count > 0 {
				own.some[run.Shard] = uint32(len(own.shard))
				own.list = append(own.list, run.Shard)
			}
			for range run.Count {
				own.shard = append(own.shard, run.Shard)
				own.ways = append(own.ways, r.ways[run.Shard])
			}
		}
		if len(own.shard) != int(t.Buckets) {
			return nil, fmt.Errorf("cluster map leaves buckets of tier %d without a shard", t.ID)
		}
		slices.Sort(own.list)
		r.tiers[t.ID] = own
	}
	return r, nil
}

// way is the way to the shard of a bucket; nil is unknown.
func (r *routes) way(tier uint8, bucket uint32) *way {
	t := r.tiers[tier]
	if t == nil || bucket >= uint32(len(t.ways)) {
		return nil
	}
	return t.ways[bucket]
}

// owner is the shard of a bucket; 0 is unknown.
func (r *routes) owner(tier uint8, bucket uint32) uint64 {
	t := r.tiers[tier]
	if t == nil || bucket >= uint32(len(t.shard)) {
		return 0
	}
	return t.shard[bucket]
}
