package request

import (
	"math"
	"sync/atomic"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Routes is the cluster map at one revision, prepared for the listeners: who serves a bucket is two
// array accesses. It never changes; a newer map is a new one.
type Routes struct {
	State   *meta.State
	current meta.Key
	before  meta.Key
	tiers   [meta.MaxTiers][]Shard    // by bucket; nil where another instance serves it
	single  bool                      // all nodes live in tier 0
	Rates   map[uint64]*Rate          // by node; nil when no node has a quota of requests
	Refused map[uint64]*atomic.Uint64 // by node: requests refused by its quota; never goes back
	moves   []meta.Move               // under way
	formats meta.Formats              // the highest that may be written
}

// newRoutes prepares a map; shard finds the shards that are hosted here. Rates of nodes are carried
// over from former, which may be nil.
func newRoutes(state *meta.State, shard func(id uint64) Shard, former *Routes) *Routes {
	r := &Routes{State: state, single: true, moves: state.Moves(), formats: state.Formats()}
	r.current, r.before = state.Keys()
	if former == nil {
		former = new(Routes)
	}
	r.setRates(former)
	for _, t := range state.Tiers() {
		r.single = r.single && (t.ID == 0 || t.Buckets == 0)
		list := make([]Shard, t.Buckets)
		for _, run := range t.Runs {
			for b := run.First; b < run.First+run.Count; b++ {
				list[b] = shard(run.Shard)
			}
		}
		r.tiers[t.ID] = list
	}
	return r
}

// Shard returns the shard here that owns a bucket of a tier, or nil.
func (r *Routes) Shard(tier uint8, bucket uint64) Shard {
	list := r.tiers[tier]
	if bucket >= uint64(len(list)) {
		return nil
	}
	return list[bucket]
}

// homeOf is the home bucket of a start with this create id in a tier.
func (r *Routes) homeOf(tier uint8, createID [protocol.KeyLen]byte) uint64 {
	buckets := uint32(len(r.tiers[tier]))
	if buckets == 0 {
		return protocol.HomeOfCreateID // no shard has it
	}
	return uint64(protocol.HomeBucket(createID, buckets))
}

// owner is the shard that owns a bucket of a tier, wherever it is served; 0: there is no such
// bucket.
func (r *Routes) owner(tier uint8, bucket uint64) uint64 {
	if bucket > math.MaxUint32 {
		return 0
	}
	shard, _ := r.State.Route(tier, uint32(bucket))
	return shard
}

// noHome reports whether the cluster does not have the tier or the bucket of a session id, which
// then no session has. Tiers are made with the cluster.
func (r *Routes) noHome(sessionID uint64) bool {
	return len(r.State.Tiers()) > 0 &&
		int(protocol.SessionBucket(sessionID)) >= len(r.tiers[protocol.SessionTier(sessionID)])
}

// inMove reports whether a bucket of a shard is in a move from or to it, so that the shard may not
// serve it.
func (r *Routes) inMove(shard, bucket uint64) bool {
	for i := range r.moves {
		if m := &r.moves[i]; (m.From == shard || m.To == shard) && bucket-uint64(m.First) < uint64(m.Count) {
			return true
		}
	}
	return false
}

// tierOf is the tier of a node; 0 for one that is not known.
func (r *Routes) tierOf(node uint64) uint8 {
	if r.single {
		return 0
	}
	n, _ := r.State.Node(node)
	return n.Tier
}

// Keys are the current and the previous ticket key.
func (r *Routes) Keys() (current, previous *meta.Key) { return &r.current, &r.before }

// Home is the home shard of a remote session, and the epoch of its bucket. A nil table knows none.
func (r *Routes) Home(tier uint8, bucket uint32) (shard, epoch uint64) {
	if r == nil {
		return 0, 0
	}
	return r.State.Route(tier, bucket)
}

// Format is the highest format version of a data shard that may be written. A nil table knows the
// first one alone.
func (r *Routes) Format() uint8 {
	if r == nil {
		return meta.FormatsOf(meta.Version{}).Shard
	}
	return r.formats.Shard
}

// NodePath is the path of a node. A nil table knows none: shards ask while they apply their logs at
// the start.
func (r *Routes) NodePath(id uint64) (string, bool) {
	if r == nil {
		return "", false
	}
	n, ok := r.State.Node(id)
	return n.Path, ok
}
