package server

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/shard"
)

// nodeQuotas are the labels of a node's quotas, in the order in which writeQuotas shows them. The first are those of shard.Quota.
var nodeQuotas = [...]string{
	shard.QuotaSessions: "sessions", shard.QuotaSemaphores: "semaphores", shard.QuotaBytes: "bytes", shard.QuotaWaiters: "waiters",
	quotaWatchers: "watchers", quotaRequests: "requests",
}

const (
	quotaWatchers = 4
	quotaRequests = 5
)

// quotaUse is one quota of one node, as far as this instance has to do with it.
type quotaUse struct{ used, refused uint64 }

// quotaUses gathers what nodes use of their quotas here: in the shards that are led here, watchers in all shards, and requests refused at this listener. Sums over the instances
// are those of the cluster. most bounds the nodes; cut: there are more.
func (s *Server) quotaUses(most int) (uses map[uint64]*[len(nodeQuotas)]quotaUse, cut bool) {
	uses = make(map[uint64]*[len(nodeQuotas)]quotaUse)
	of := func(node uint64) *[len(nodeQuotas)]quotaUse {
		u := uses[node]
		if u == nil {
			if len(uses) >= most {
				cut = true
				return new([len(nodeQuotas)]quotaUse)
			}
			u = new([len(nodeQuotas)]quotaUse)
			uses[node] = u
		}
		return u
	}
	for _, d := range s.shards.all() {
		leads := d.raft.Leading()
		d.raft.View(func(machine *shard.Machine) {
			for _, node := range machine.Nodes() {
				u := of(node)
				if x, ok := machine.Usage(node); ok && leads {
					for q := range x.Used {
						u[q].used += x.Used[q]
						u[q].refused += x.Refused[q]
					}
				}
				w := d.delivery.Quota.Usage(node)
				u[quotaWatchers].used += w.Open
				u[quotaWatchers].refused += w.Rejected
			}
		})
	}
	for node, r := range s.routing().rates {
		of(node)[quotaRequests].refused += r.refused.Load()
	}
	return uses, cut
}

// writeQuotas shows what nodes use of their quotas, what the quotas are, and how many requests each has refused. The number of series is bounded;
// signalbox_node_series_truncated is 1 when nodes were left out.
func (m *serverMetrics) writeQuotas(w io.Writer) {
	uses, over := m.server.quotaUses(m.server.cfg.Limits.MaxSeries / (3 * len(nodeQuotas)))
	state := m.server.routing().state
	for _, id := range slices.Sorted(maps.Keys(uses)) {
		n, ok := state.Node(id)
		if !ok {
			continue // dropped
		}
		c := &n.Config
		limits := [len(nodeQuotas)]uint64{c.MaxSessions, c.MaxSemaphores, c.MaxBytes, c.MaxWaiters, c.MaxWatchers, c.MaxRequests}
		for q, u := range uses[id] {
			labels := fmt.Sprintf("node=%q,quota=%q", m.server.nodeLabel(id, n.Path), nodeQuotas[q])
			if q != quotaRequests {
				fmt.Fprintf(w, "signalbox_node_used{%s} %d\n", labels, u.used)
			}
			if limits[q] != 0 {
				fmt.Fprintf(w, "signalbox_node_quota{%s} %d\n", labels, limits[q])
			}
			fmt.Fprintf(w, "signalbox_node_refused_total{%s} %d\n", labels, u.refused)
		}
	}
	cut := 0
	if over {
		cut = 1
	}
	fmt.Fprintf(w, "signalbox_node_series_truncated %d\n", cut)
}
