package shardhost

import (
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/ratelimit"
)

// seriesOfLeaf is how many series a leaf of a rate limit has.
const seriesOfLeaf = 9

// writeRateLimits shows what leaders of rate limits do, and with names the leaves that are led here.
func writeRateLimits(p *metrics.Page, shards []*Shard, state *meta.State, names bool) {
	budget := metrics.Budget{Left: p.MaxSeries()}
	for _, d := range shards {
		shard := metrics.ID(d.ID())
		p.Write(metrics.LimitRefreshes, d.requests.LimitRefreshes.Load(), shard)
		p.Write(metrics.LimitAcquires, d.requests.LimitAcquires.Load(), shard)
		p.Write(metrics.LimitNotifications, d.limits.notified.Load(), shard)
		most := 0
		if names {
			most = budget.Left/seriesOfLeaf + 1 // one too many, if there are more
		}
		u := d.limits.usage(most)
		p.Write(metrics.LimitLearning, logSeconds(u.learning), shard)
		p.Write(metrics.LimitUnconfirmed, u.unconfirmed, shard)
		for i := range u.leaves {
			x := &u.leaves[i]
			if !budget.Take(seriesOfLeaf) {
				break
			}
			n, _ := state.Node(x.node)
			labels := []string{n.Path, x.Path}
			p.Write(metrics.LimitRate, units(x.Rate), labels...)
			p.Write(metrics.LimitLeasedRate, units(x.Leased), labels...)
			p.Write(metrics.LimitCountedRate, units(x.Counted), labels...)
			p.Write(metrics.LimitAllowed, units(x.Allowed), labels...)
			p.Write(metrics.LimitDenied, units(x.Denied), labels...)
			p.Write(metrics.LimitWaited, units(x.Waited), labels...)
			p.Write(metrics.LimitImpossible, units(x.Impossible), labels...)
			p.Write(metrics.LimitLacking, x.Lacking, labels...)
			p.Write(metrics.LimitLackingTime, logSeconds(x.Lacks), labels...)
		}
	}
	p.Write(metrics.LimitsTruncated, budget.Cut)
}

// limitUsage is what metrics show of the rate limits that are led here.
type limitUsage struct {
	learning    uint64 // ms, the longest of any tree
	unconfirmed int
	leaves      []leafUsage
}

// leafUsage is of a leaf in a node.
type leafUsage struct {
	node uint64
	ratelimit.Usage
}

// usage shows at most so many leaves.
func (s *limitSink) usage(most int) (u limitUsage) {
	raft := s.host.Replica()
	raft.View(func(m *shard.Machine) {
		raft.RateLimits(m, func(leases *leader.RateLimits) {
			leases.All(m, raft.LogTime(), func(node, now uint64, l *ratelimit.Leases) bool {
				u.learning = max(u.learning, l.Learning(now))
				u.unconfirmed += l.Unconfirmed()
				l.Usage(func(x *ratelimit.Usage) bool {
					if len(u.leaves) == most {
						return false
					}
					u.leaves = append(u.leaves, leafUsage{node, *x})
					return true
				})
				return true
			})
		})
	})
	return u
}

// units of a rate limit are kept in thousandths.
func units(thousandths uint64) float64 { return float64(thousandths) / 1000 }
