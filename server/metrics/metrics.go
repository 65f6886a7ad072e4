// Package metrics has the counters and histograms that the parts of a server increment, and writes
// series in the Prometheus text format. It reads no live object: the assembly registers a callback
// for each.
package metrics

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Metrics are those of one server: two servers in a process do not share them. Everything may be
// used from any goroutine.
type Metrics struct {
	*metrics.Set

	AuthFailures    *metrics.Counter
	CutByLeader     *metrics.Counter // connections that the leader of a shard has closed
	Panics          *metrics.Counter // contained
	RepliesDropped  *metrics.Counter // because their connection is gone
	RelaxedAttaches *metrics.Counter
	MemoryRefused   *metrics.Counter             // requests over the limit on memory
	LogWrite        *metrics.PrometheusHistogram // seconds a write to the log takes, its sync included

	batchCommands, batchSeconds  *metrics.PrometheusHistogram
	roundSeconds, prepareSeconds *metrics.PrometheusHistogram
	ended                        [8]*metrics.Counter // sessions, by reason

	mu            sync.Mutex
	replies       []*Replies
	closedReplies Replies // the sum of those that were closed
}

var (
	latencies = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	rounds    = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	sizes     = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048}
)

// EndReasons are the reasons of a session's end as metrics and the log name them.
var EndReasons = map[protocol.EndReason]string{
	protocol.EndStopped: "stopped", protocol.EndExpired: "expired", protocol.EndKilled: "killed", protocol.EndNodeDropped: "node_dropped",
}

// New makes the metrics of a server.
func New() *Metrics {
	set := metrics.NewSet()
	m := &Metrics{
		Set:             set,
		AuthFailures:    set.NewCounter("signalbox_auth_failures_total"),
		CutByLeader:     set.NewCounter(`signalbox_connections_closed_total{reason="leader"}`),
		Panics:          set.NewCounter("signalbox_panics_total"),
		RepliesDropped:  set.NewCounter("signalbox_replies_dropped_total"),
		RelaxedAttaches: set.NewCounter("signalbox_relaxed_attaches_total"),
		MemoryRefused:   set.NewCounter("signalbox_memory_refusals_total"),

		LogWrite:       set.NewPrometheusHistogramExt("signalbox_log_write_seconds", latencies),
		batchCommands:  set.NewPrometheusHistogramExt("signalbox_batch_commands", sizes),
		batchSeconds:   set.NewPrometheusHistogramExt("signalbox_batch_seconds", latencies),
		roundSeconds:   set.NewPrometheusHistogramExt("signalbox_process_round_seconds", rounds),
		prepareSeconds: set.NewPrometheusHistogramExt("signalbox_process_prepare_seconds", rounds),
	}
	for reason, name := range EndReasons {
		m.ended[reason] = set.NewCounter(fmt.Sprintf("signalbox_sessions_ended_total{reason=%q}", name))
	}
	set.RegisterMetricsWriter(m.writeReplies)
	return m
}

// SessionEnded counts the end of a session.
func (m *Metrics) SessionEnded(r protocol.EndReason) {
	if int(r) < len(m.ended) && m.ended[r] != nil {
		m.ended[r].Inc()
	}
}

// EndedSessions is the number of sessions that have ended for a reason.
func (m *Metrics) EndedSessions(r protocol.EndReason) uint64 { return m.ended[r].Get() }

// Batch measures a batch of requests that was applied: its size, and how long its first request
// took since it began, 0 for unknown. That is one observation for hundreds of requests.
func (m *Metrics) Batch(commands int, began, now time.Duration) {
	m.batchCommands.Update(float64(commands))
	if began != 0 {
		m.batchSeconds.Update((now - began).Seconds())
	}
}

// Round measures a round of a coordination process that has ended, in log time; prepared is how
// long its members took to prepare, 0 if they did not.
func (m *Metrics) Round(duration, prepared time.Duration) {
	m.roundSeconds.Update(duration.Seconds())
	if prepared > 0 {
		m.prepareSeconds.Update(prepared.Seconds())
	}
}

func (m *Metrics) writeReplies(w io.Writer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for kind := range protocol.Kind(countedKinds) {
		for st := range protocol.Status(countedStatuses) {
			n := m.closedReplies.Of(kind, st)
			for _, r := range m.replies {
				n += r.Of(kind, st)
			}
			if n != 0 {
				Write(w, "signalbox_requests_total", Labels("kind", kind.String(), "status", st.String()), n)
			}
		}
	}
}
