package shardhost

import (
	"maps"
	"slices"
	"sync"

	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// nodeQuotas are the labels of a node's quotas, in the order in which writeQuotas shows them. The
// first are those of shard.Quota.
var nodeQuotas = [...]string{
	shard.QuotaSessions: "sessions", shard.QuotaSemaphores: "semaphores", shard.QuotaBytes: "bytes",
	shard.QuotaWaiters: "waiters",
	quotaWatchers:      "watchers", quotaRequests: "requests",
}

const (
	quotaWatchers = 4
	quotaRequests = 5
)

// refusals count what quotas refused in the shards of this instance: in those that it led, and
// watchers in all. They are no shard's, so that no count goes back when a shard leaves the
// instance.
type refusals struct {
	mu     sync.Mutex
	byNode map[uint64][quotaRequests]uint64
}

// add adds what a shard counts now beyond what it had counted.
func (r *refusals) add(node uint64, now, was [quotaWatchers]uint64) {
	if now == was {
		return
	}
	r.change(node, func(sum *[quotaRequests]uint64) {
		for q := range now {
			sum[q] += now[q] - was[q]
		}
	})
}

// addWatcher counts a watcher that a shard refused.
func (r *refusals) addWatcher(node uint64) {
	r.change(node, func(sum *[quotaRequests]uint64) { sum[quotaWatchers]++ })
}

func (r *refusals) change(node uint64, f func(sum *[quotaRequests]uint64)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byNode == nil {
		r.byNode = make(map[uint64][quotaRequests]uint64)
	}
	sum := r.byNode[node]
	f(&sum)
	r.byNode[node] = sum
}

// of are those of all nodes. Nodes that were dropped are forgotten.
func (r *refusals) of(state *meta.State) map[uint64][quotaRequests]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.byNode, func(node uint64, _ [quotaRequests]uint64) bool { return state.NodeDropped(node) })
	return maps.Clone(r.byNode)
}

// quotaUse is one quota of one node, as far as this instance has to do with it.
type quotaUse struct{ used, refused uint64 }

// quotaUses gathers what nodes use of their quotas here: in the shards that are led here, watchers
// in all shards, and requests refused at this listener. Sums over the instances are those of the
// cluster. most bounds the nodes; cut: there are more. Nodes to which a quota has refused something
// come first, and then those with waiters: alerts look at them.
func (s *Serving) quotaUses(
	shards []*Shard, r *request.Routes, most int,
) (uses map[uint64]*[len(nodeQuotas)]quotaUse, cut bool) {
	g := s.gatherUses(shards, r, nil, most)
	if g.cut {
		g = s.gatherUses(shards, r, append(slices.Sorted(maps.Keys(g.refused)), slices.Sorted(maps.Keys(g.waiting))...),
			most)
	}
	return g.uses, g.cut
}

// gatheredUses are the uses of at most so many nodes.
type gatheredUses struct {
	uses             map[uint64]*[len(nodeQuotas)]quotaUse
	cut              bool            // there are more nodes
	refused, waiting map[uint64]bool // of all nodes: those that were refused something, or wait
}

// gatherUses gathers the uses of the nodes that are named first, if they are not too many, and of
// others.
func (s *Serving) gatherUses(shards []*Shard, r *request.Routes, first []uint64, most int) *gatheredUses {
	g := &gatheredUses{
		uses: make(map[uint64]*[len(nodeQuotas)]quotaUse), refused: make(map[uint64]bool), waiting: make(map[uint64]bool),
	}
	var rest [len(nodeQuotas)]quotaUse // takes what nodes have that are left out
	of := func(node uint64) *[len(nodeQuotas)]quotaUse {
		u := g.uses[node]
		if u == nil && len(g.uses) >= most {
			g.cut = true
			return &rest
		}
		if u == nil {
			u = new([len(nodeQuotas)]quotaUse)
			g.uses[node] = u
		}
		return u
	}
	for _, node := range first {
		of(node)
	}
	refuse := func(u *[len(nodeQuotas)]quotaUse, node uint64, q int, n uint64) {
		u[q].refused += n
		if n > 0 {
			g.refused[node] = true
		}
	}
	for _, d := range shards {
		leads := d.Replica().Leading()
		d.Replica().View(func(machine *shard.Machine) {
			for _, node := range machine.Nodes().IDs() {
				u := of(node)
				if x, ok := machine.Nodes().Usage(node); ok && leads {
					for q := range x.Used {
						u[q].used += x.Used[q]
					}
					if x.Used[shard.QuotaWaiters] > 0 {
						g.waiting[node] = true
					}
				}
				u[quotaWatchers].used += d.hubs.Quota.Open(node)
			}
		})
	}
	for node, n := range s.refusals.of(r.State) {
		for q := range n {
			refuse(of(node), node, q, n[q])
		}
	}
	for node, n := range r.Refused {
		refuse(of(node), node, quotaRequests, n.Load())
	}
	return g
}

// writeQuotas shows what nodes use of their quotas, what the quotas are, and how many requests each
// has refused. Where paths are not shown, a node has its number.
func (s *Serving) writeQuotas(p *metrics.Page, shards []*Shard, r *request.Routes, paths bool) {
	uses, cut := s.quotaUses(shards, r, p.MaxSeries()/len(nodeQuotas))
	for _, id := range slices.Sorted(maps.Keys(uses)) {
		n, ok := r.State.Node(id)
		if !ok {
			continue // dropped, or not in this map yet
		}
		label := nodeLabel(&n, paths)
		c := &n.Config
		limits := [len(nodeQuotas)]uint64{c.MaxSessions, c.MaxSemaphores, c.MaxBytes, c.MaxWaiters, c.MaxWatchers,
			c.MaxRequests}
		for q, u := range uses[id] {
			if q != quotaRequests {
				p.Write(metrics.NodeUsed, u.used, label, nodeQuotas[q])
			}
			if limits[q] != 0 {
				p.Write(metrics.NodeQuota, limits[q], label, nodeQuotas[q])
			}
			p.Write(metrics.NodeRefused, u.refused, label, nodeQuotas[q])
		}
	}
	p.Write(metrics.NodesTruncated, cut)
}

// nodeLabel is what metrics call a node: its path, or its number where paths are not shown.
func nodeLabel(n *meta.Node, paths bool) string {
	if !paths {
		return metrics.ID(n.ID)
	}
	return n.Path
}
