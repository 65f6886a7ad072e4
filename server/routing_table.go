package server

import (
	"context"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// routes is the cluster map at one revision, prepared for the listeners: who serves a bucket is two array accesses. It never changes; a newer map is a new one.
type routes struct {
	state   *meta.State
	current meta.Key
	before  meta.Key
	tiers   [meta.MaxTiers][]*shardHost // by bucket; nil where another instance serves it
	single  bool                        // all nodes live in tier 0
	rates   map[uint64]*requestRate     // by node; nil when no node has a quota of requests
}

// routing is the newest map this instance knows.
func (s *Server) routing() *routes { return s.routes.Load() }

// setRoutes prepares a map. One goroutine calls it.
func (s *Server) setRoutes(state *meta.State) {
	r := &routes{state: state, single: true}
	r.current, r.before = state.Keys()
	var rates map[uint64]*requestRate
	if old := s.routes.Load(); old != nil {
		rates = old.rates
	}
	r.rates = nodeRates(state, rates)
	for _, t := range state.Tiers() {
		r.single = r.single && t.ID == 0
		list := make([]*shardHost, t.Buckets)
		for _, run := range t.Runs {
			for b := run.First; b < run.First+run.Count; b++ {
				list[b] = s.shards.get(run.Shard)
			}
		}
		r.tiers[t.ID] = list
	}
	s.routes.Store(r)
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

// route is where a leader finds the home shards of its remote sessions.
func (s *Server) route(tier uint8, bucket uint32) (shard, epoch uint64) {
	r := s.routes.Load()
	if r == nil {
		return 0, 0
	}
	return r.state.Route(tier, bucket)
}

// nodePath is the path of a node id. Shards ask before the first routing table is there: they apply
// their logs while the instance starts.
func (s *Server) nodePath(id uint64) (string, bool) {
	r := s.routes.Load()
	if r == nil {
		return "", false
	}
	n, ok := r.state.Node(id)
	return n.Path, ok
}

// mapReply is the map for clients, with the masters as they are now, and the addresses for their way of connecting.
func (s *Server) mapReply(known uint64, secure bool) *protocol.MapReply {
	r := governor.MapReply(s.routing().state, known, func(shard uint64) (instance, term uint64) {
		if d := s.shards.get(shard); d != nil {
			return d.leaderInstance()
		}
		return 0, 0
	})
	for i := range r.Instances {
		r.Instances[i].Address = addressFor(r.Instances[i].Address, secure)
	}
	return &r
}

// announceMap tells every connection that there is a newer map.
func (s *Server) announceMap(version uint64) {
	s.broadcastMapChanged(&protocol.MapChanged{Version: version})
}

// announceLeaders tells every connection when the shard has a new master, or serves buckets that have
// moved: clients then need not find out by asking in vain. It runs until ctx ends.
func (d *shardHost) announceLeaders(ctx context.Context) {
	s := d.server
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.leaderChanged:
		}
		r := s.routing()
		if master, term := d.leaderInstance(); master != 0 && r != nil { // nil: nobody is connected yet
			s.broadcastMapChanged(&protocol.MapChanged{Version: r.state.MapVersion(), Shard: d.id, Master: master, Term: term})
		}
	}
}

func (s *Server) broadcastMapChanged(m *protocol.MapChanged) {
	o := s.borrowOutbox()
	defer s.returnOutbox(o)
	s.eachConn(func(c *conn) {
		if c.Established() {
			o.event(c, protocol.KindMapChanged, 0, 0, m)
		}
	})
}
