package serving

import (
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/shard"
)

// nodeQuotas are the labels of a node's quotas, in the order in which writeQuotas shows them. The
// first are those of shard.Quota.
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

// quotaUses gathers what nodes use of their quotas here: in the shards that are led here, watchers
// in all shards, and requests refused at this listener. Sums over the instances are those of the
// cluster. most bounds the nodes; cut: there are more.
func quotaUses(shards []*Shard, rates map[uint64]*request.Rate, most int) (uses map[uint64]*[len(nodeQuotas)]quotaUse, cut bool) {
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
	for _, d := range shards {
		leads := d.Raft().Leading()
		d.Raft().View(func(machine *shard.Machine) {
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
	for node, r := range rates {
		of(node)[quotaRequests].refused += r.Refused.Load()
	}
	return uses, cut
}

// writeQuotas shows what nodes use of their quotas, what the quotas are, and how many requests each
// has refused. most bounds the series; signalbox_node_series_truncated is 1 if nodes were left out.
// Where names are not shown, a node has its number.
func writeQuotas(w io.Writer, shards []*Shard, r *request.Routes, most int, names bool) {
	uses, cut := quotaUses(shards, r.Rates, most/(3*len(nodeQuotas)))
	for _, id := range slices.Sorted(maps.Keys(uses)) {
		n, ok := r.State.Node(id)
		if !ok {
			continue // dropped
		}
		label := strconv.FormatUint(id, 10)
		if names {
			label = metrics.Label(n.Path)
		}
		c := &n.Config
		limits := [len(nodeQuotas)]uint64{c.MaxSessions, c.MaxSemaphores, c.MaxBytes, c.MaxWaiters, c.MaxWatchers, c.MaxRequests}
		for q, u := range uses[id] {
			labels := metrics.Labels("node", label, "quota", nodeQuotas[q])
			if q != quotaRequests {
				metrics.Write(w, "signalbox_node_used", labels, u.used)
			}
			if limits[q] != 0 {
				metrics.Write(w, "signalbox_node_quota", labels, limits[q])
			}
			metrics.Write(w, "signalbox_node_refused_total", labels, u.refused)
		}
	}
	metrics.Write(w, "signalbox_node_series_truncated", "", cut)
}
