package shardhost

import (
	"context"
	"log/slog"
	"time"

	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/busiest"
	"github.com/signalbox-dev/signalbox/server/delivery"
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/server/session"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// ServingConfig is the configuration of a Serving. All fields are required.
type ServingConfig struct {
	Requests *request.Server
	Bindings *session.Table
	Shards   *Table
	Watches  delivery.WatchLimits // of each shard

	Clock   replica.Clock
	Log     *slog.Logger
	Metrics *metrics.Metrics
	Series  int // at most so many series are made from names that clients chose, of each kind
	Audit   func(audit.Event)
}

// Serving is what the shards of one instance have in common.
type Serving struct {
	ServingConfig
	Rates    busiest.Rates
	history  busiest.History
	refusals refusals
	began    time.Time
	flusher  *delivery.Flusher
	expired  *expiredLog

	histories *delivery.HistoryBudget
}

// NewServing returns one that serves no shard yet. Close ends it.
func NewServing(cfg ServingConfig) *Serving {
	began := time.Now() // windows of a few ms are a matter of real time
	return &Serving{ServingConfig: cfg, began: began, histories: delivery.NewHistoryBudget(delivery.MaxHistories),
		expired: newExpiredLog(), flusher: delivery.NewFlusher(func() time.Duration {
			return time.Since(began)
		}, cfg.Requests.Flush)}
}

// Close stops the goroutine that ends the windows of watches.
func (s *Serving) Close() { s.flusher.Close() }

// LogExpired writes to the log how many sessions expired, until ctx ends.
func (s *Serving) LogExpired(ctx context.Context) {
	s.expired.run(ctx, s.Log, func(node uint64) string {
		path, _ := s.Requests.Routes().NodePath(node)
		return path
	})
}

// WriteMetrics writes the series of the shards here. With paths, nodes have their paths instead of
// their numbers; with names there are also series of semaphores and tracks.
func (s *Serving) WriteMetrics(p *metrics.Page, paths, names bool) {
	shards, routes := s.Shards.All(), s.Requests.Routes()
	s.collect(shards, p.MaxSeries())
	writeShards(p, shards)
	s.writeTimes(p, routes.State, paths)
	l := metricsOf(shards, p.MaxSeries())
	writeOldestWaits(p, l, routes.State, paths)
	if names {
		writeSemaphores(p, shards, l, routes.State)
	}
	s.writeQuotas(p, shards, routes, paths)
	writeProcesses(p, shards)
	writeRollouts(p, shards, routes.State, names)
	writeRateLimits(p, shards, routes.State, names)
}
