// Package serving serves the shards that an instance hosts to its clients. A [Shard] stands between
// a shard's replica and the connections: what the replica reports becomes replies, events, pongs
// and goodbyes, and a metric or a line of the audit log where operators want one.
//
// It knows connections as clients of the package request, and leaves watches and streams to
// delivery.
package serving

import (
	"log/slog"
	"time"

	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/busiest"
	"github.com/signalbox-dev/signalbox/server/delivery"
	"github.com/signalbox-dev/signalbox/server/hosting"
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/server/session"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// Config of a Serving. All fields are required.
type Config struct {
	Requests *request.Server
	Bindings *session.Table
	Shards   Table
	Watches  delivery.WatchLimits // of each shard

	Clock   replica.Clock
	Log     *slog.Logger
	Metrics *metrics.Metrics
	Series  int // at most so many series are made from names that clients chose, of each kind
	Audit   func(audit.Event)
}

// Serving is what the shards of one instance have in common.
type Serving struct {
	Config
	Rates    busiest.Rates
	refusals refusals
	began    time.Time
	flusher  *delivery.Flusher
}

// New returns one that serves no shard yet. Close ends it.
func New(cfg Config) *Serving {
	began := time.Now() // windows of a few ms are a matter of real time
	return &Serving{Config: cfg, began: began,
		flusher: delivery.NewFlusher(func() time.Duration { return time.Since(began) }, cfg.Requests.Flush)}
}

// Close stops the goroutine that ends the windows of watches.
func (s *Serving) Close() { s.flusher.Close() }

// WriteMetrics writes the series of the shards here; names: also those that name semaphores, tracks
// and nodes.
func (s *Serving) WriteMetrics(p *metrics.Page, names bool) {
	shards, routes := s.Shards.All(), s.Requests.Routes()
	s.collect(shards, p.MaxSeries())
	writeShards(p, shards)
	s.writeTimes(p, routes.State, names)
	l := gatherLoads(shards, p.MaxSeries())
	writeOldestWaits(p, l, routes.State, names)
	if names {
		writeSemaphores(p, shards, l, routes.State)
	}
	s.writeQuotas(p, shards, routes, names)
	writeProcesses(p, shards)
	writeRollouts(p, shards, routes.State, names)
}

// Table finds the shards that this instance hosts, as it serves them.
type Table struct{ Hosted *hosting.Table }

var _ request.Shards = Table{}

// Get finds a shard, nil if it has no replica here.
func (t Table) Get(id uint64) *Shard {
	if x := t.Hosted.Get(id); x != nil {
		return x.Front.(*Shard)
	}
	return nil
}

// All lists the shards here, in order of their ids.
func (t Table) All() (list []*Shard) {
	for _, x := range t.Hosted.All() {
		list = append(list, x.Front.(*Shard))
	}
	return list
}

// Shard implements request.Shards.
func (t Table) Shard(id uint64) request.Shard {
	if d := t.Get(id); d != nil {
		return d
	}
	return nil
}

// CloseStream implements request.Shards.
func (t Table) CloseStream(conn, watch uint64) {
	for _, d := range t.All() {
		d.delivery.CloseStream(conn, watch)
	}
}
