package server

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// routes is the cluster map at one revision, prepared for requests: a bucket's shard is two array
// accesses away. It never changes; a newer map is a new one.
type routes struct {
	state   *meta.State
	current meta.Key
	before  meta.Key
	tiers   [meta.MaxTiers][]*shardHost // by bucket; nil where another instance serves it
	single  bool                        // all nodes live in tier 0
	rates   map[uint64]*requestRate     // by node; nil when no node has a quota of requests
}

// newRoutes prepares a map. The rates of nodes go on from the former one; nil: there is none.
func newRoutes(state *meta.State, shards shardTable, former *routes) *routes {
	r := &routes{state: state, single: true}
	r.current, r.before = state.Keys()
	var rates map[uint64]*requestRate
	if former != nil {
		rates = former.rates
	}
	r.rates = nodeRates(state, rates)
	for _, t := range state.Tiers() {
		r.single = r.single && t.ID == 0
		list := make([]*shardHost, t.Buckets)
		for _, run := range t.Runs {
			for b := run.First; b < run.First+run.Count; b++ {
				list[b] = shards.get(run.Shard)
			}
		}
		r.tiers[t.ID] = list
	}
	return r
}

// shard is the shard here that owns a bucket of a tier, nil when there is none.
func (r *routes) shard(tier uint8, bucket uint64) *shardHost {
	list := r.tiers[tier]
	if bucket >= uint64(len(list)) {
		return nil
	}
	return list[bucket]
}

// tierOf is the tier of a node; 0 for one that is not known.
func (r *routes) tierOf(node uint64) uint8 {
	if r.single {
		return 0
	}
	n, _ := r.state.Node(node)
	return n.Tier
}

// keys are the current and the previous ticket key.
func (r *routes) keys() (current, previous *meta.Key) { return &r.current, &r.before }

// home is the home shard of a remote session, and the epoch of its bucket. A nil table knows none.
func (r *routes) home(tier uint8, bucket uint32) (shard, epoch uint64) {
	if r == nil {
		return 0, 0
	}
	return r.state.Route(tier, bucket)
}

// nodePath is the path of a node. A nil table knows none: shards ask while they apply their logs at
// the start.
func (r *routes) nodePath(id uint64) (string, bool) {
	if r == nil {
		return "", false
	}
	n, ok := r.state.Node(id)
	return n.Path, ok
}

// mapReply is the map for a client, with the masters as they are now, and the addresses for its
// kind of connection.
func (r *routes) mapReply(shards shardTable, known uint64, secure bool) *protocol.MapReply {
	m := governor.MapReply(r.state, known, func(shard uint64) (instance, term uint64) {
		if d := shards.get(shard); d != nil {
			return d.LeaderInstance()
		}
		return 0, 0
	})
	for i := range m.Instances {
		m.Instances[i].Address = addressFor(m.Instances[i].Address, secure)
	}
	return &m
}
