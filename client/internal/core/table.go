package core

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// table is the cluster map in the form that requests are routed by. But for owners and leaders that
// are newer than the map, it is not changed.
type table struct {
	version   uint64
	reply     *protocol.MapReply
	tiers     []*tier // by id; nil: there is none of that id
	shards    map[uint64]*shardRoute
	addresses map[uint64]string // by instance
}

// shardRoute says where a shard is served. The leader is what the map said, and then what instances
// announced since.
type shardRoute struct {
	shard    uint64
	tier     uint8    // of its buckets
	replicas []uint64 // instances
	leader   uint64   // instance, 0: not known
	link     *link    // to it; nil: it is not known
	// term of raft since which it leads, as far as somebody said; 0: nobody did
	term uint64
}

// tier says who owns the buckets of a tier, in six bytes for each run of buckets with one owner: a
// process may have thousands of clients.
//
// Invariant: first begins with 0 and rises, place is as long, and its values are below that of
// owners.
type tier struct {
	buckets uint32
	first   []uint32 // of each run: its first bucket
	place   []uint16 // of each run: the place of its owner in owners
	owners  []*shardRoute
	moved   map[uint32]movedBucket // newer owners, which refusals named; nil: there are none
}

// movedBucket is a bucket's owner in a newer map than the one that is here.
type movedBucket struct {
	owner   *shardRoute
	version uint64 // of that map
}

// owner of a bucket, or nil. The tier may be nil.
func (t *tier) owner(bucket uint32) *shardRoute {
	switch {
	case t == nil || bucket >= t.buckets:
		return nil
	case t.moved != nil && t.moved[bucket].owner != nil:
		return t.moved[bucket].owner
	case len(t.owners) == 1:
		return t.owners[0]
	}
	i, begins := slices.BinarySearch(t.first, bucket)
	if !begins {
		i--
	}
	return t.owners[t.place[i]]
}

// tier is the tier of an id, or nil. The table may be nil.
func (t *table) tier(id uint8) *tier {
	if t != nil && int(id) < len(t.tiers) {
		return t.tiers[id]
	}
	return nil
}

// shard is the route of a shard, or nil. The table may be nil.
func (t *table) shard(id uint64) *shardRoute {
	if t == nil {
		return nil
	}
	return t.shards[id]
}

// shards are those that own buckets of the tier, in order. The tier may be nil.
func (t *tier) shards() (list []*shardRoute) {
	if t == nil {
		return nil
	}
	for _, w := range t.owners {
		if w != nil {
			list = append(list, w)
		}
	}
	slices.SortFunc(list, func(a, b *shardRoute) int { return cmp.Compare(a.shard, b.shard) })
	return list
}

// newTable checks a map; a server may send anything.
func newTable(m *protocol.MapReply) (*table, error) {
	t := &table{
		version: m.Version, reply: m, shards: make(map[uint64]*shardRoute, len(m.Shards)),
		addresses: make(map[uint64]string, len(m.Instances)),
	}
	for _, i := range m.Instances {
		t.addresses[i.ID] = i.Address
	}
	for _, s := range m.Shards {
		t.shards[s.ID] = &shardRoute{shard: s.ID, replicas: s.Replicas, leader: s.Master, term: s.Term}
	}
	for i := range m.Tiers {
		id := m.Tiers[i].ID
		own, err := newTier(&m.Tiers[i], t.shards)
		if err != nil {
			return nil, err
		}
		for len(t.tiers) <= int(id) {
			t.tiers = append(t.tiers, nil)
		}
		t.tiers[id] = own
	}
	return t, nil
}

func newTier(t *protocol.MapTier, shards map[uint64]*shardRoute) (*tier, error) {
	if t.Buckets == 0 || t.Buckets > 1<<16 {
		return nil, fmt.Errorf("cluster map gives tier %d %d buckets; there are 1 to 65536", t.ID, t.Buckets)
	}
	own := &tier{buckets: t.Buckets}
	places := make(map[uint64]uint16)
	next := uint32(0) // bucket
	for _, run := range t.Runs {
		if uint64(next)+uint64(run.Count) > uint64(t.Buckets) {
			return nil, fmt.Errorf("cluster map gives tier %d more than its %d buckets", t.ID, t.Buckets)
		}
		if run.Count == 0 {
			continue
		}
		place, seen := places[run.Shard]
		if !seen {
			place = uint16(len(own.owners)) // there are no more than buckets
			places[run.Shard] = place
			w := shards[run.Shard]
			if w != nil {
				w.tier = t.ID
			}
			own.owners = append(own.owners, w)
		}
		if n := len(own.place); n == 0 || own.place[n-1] != place {
			own.first, own.place = append(own.first, next), append(own.place, place)
		}
		next += run.Count
	}
	if next != t.Buckets {
		return nil, fmt.Errorf("cluster map leaves buckets of tier %d without a shard", t.ID)
	}
	return own, nil
}

// learnOwner has requests for a bucket of a shard go to the shard that owns it in a newer map than
// this one, until that is here. False: they go elsewhere already, or there is no such shard, or a
// still newer word was heard before.
func (t *table) learnOwner(asked *shardRoute, bucket uint32, owner *shardRoute, version uint64) bool {
	own := t.tier(asked.tier)
	if version <= t.version || owner == nil || owner == asked || own.owner(bucket) != asked ||
		own.moved[bucket].version > version {
		return false
	}
	put(&own.moved, bucket, movedBucket{owner, version})
	return true
}
