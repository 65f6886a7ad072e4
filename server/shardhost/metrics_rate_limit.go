package shardhost

import (
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// seriesOfLeaf is how many series a leaf of a rate limit has.
const seriesOfLeaf = 6

// writeRateLimits shows what leaders of rate limits do, and with names the leaves that are led here.
func writeRateLimits(p *metrics.Page, shards []*Shard, state *meta.State, names bool) {
	budget := metrics.Budget{Left: p.MaxSeries()}
	for _, d := range shards {
		shard, limits := metrics.ID(d.ID()), d.requests.Limits
		p.Write(metrics.LimitRefreshes, limits.Refreshes.Load(), shard)
		p.Write(metrics.LimitAcquires, limits.Acquires.Load(), shard)
		p.Write(metrics.LimitNotifications, limits.Notified.Load(), shard)
		most := 0
		if names {
			most = budget.Left/seriesOfLeaf + 1 // one too many, if there are more
		}
		u := limits.Usage(most)
		p.Write(metrics.LimitLearning, logSeconds(u.Learning), shard)
		p.Write(metrics.LimitUnconfirmed, u.Unconfirmed, shard)
		for i := range u.Leaves {
			x := &u.Leaves[i]
			if !budget.Take(seriesOfLeaf) {
				break
			}
			n, _ := state.Node(x.Node)
			labels := []string{n.Path, x.Path}
			p.Write(metrics.LimitRate, units(x.Rate), labels...)
			p.Write(metrics.LimitLeasedRate, units(x.Leased), labels...)
			p.Write(metrics.LimitCountedRate, units(x.Counted), labels...)
			p.Write(metrics.LimitAllowed, units(x.Allowed), labels...)
			p.Write(metrics.LimitDenied, units(x.Denied), labels...)
			p.Write(metrics.LimitWaited, units(x.Waited), labels...)
		}
	}
	p.Write(metrics.LimitsTruncated, budget.Cut)
}

// units of a rate limit are kept in thousandths.
func units(thousandths uint64) float64 { return float64(thousandths) / 1000 }
