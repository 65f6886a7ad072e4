// Package metrics declares each metric of an instance in one table, counts what the parts of a
// server increment, and writes all of it in the Prometheus text format.
//
//	m := metrics.New()
//	m.Panics.Inc()
//	m.Gauge(metrics.ConnectionsLimit, func() float64 { return 100 })
//	m.Collect(func(p *metrics.Page) { p.Write(metrics.ShardTerm, 3, "2") })
//	m.WritePrometheus(w)
//
// A metric is a variable of the table, so nothing can be written that the table lacks. REFERENCE.md
// is the table as a page. Four rules hold for what is counted:
//
//   - A cluster counts once. Every replica applies the events of a shard's log (ends of sessions,
//     waits, holds, lost leases, refusals by quotas); the leader's instance counts them.
//   - Waits and holds are measured in the state machine, in log time. The instance takes over the
//     difference at each scrape, and when a leadership begins or ends, so its counters never go
//     back when a replica goes or restarts.
//   - Names of semaphores, tracks and nodes would make series without a bound, and show what clients
//     have chosen. Caps bound their number and [Label] their length, and while auth is on they are
//     left out unless the configuration asks for them.
//   - A scrape does not walk all semaphores. A shard with more than a few thousand shows those that
//     somebody waits for and those that are granted most often.
package metrics

import (
	"io"
	"strings"
	"sync"
	"time"

	vm "github.com/VictoriaMetrics/metrics"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Counter is a number that only grows. The zero value is ready.
type Counter = vm.Counter

// Histogram counts observations by size. [Metrics.Histogram] makes one.
type Histogram = vm.PrometheusHistogram

// DefaultMaxSeries is how many series a metric may have whose labels are names that clients choose.
const DefaultMaxSeries = 1000

// Metrics are those of one server: two servers in a process do not share them. Everything may be
// used from any goroutine.
type Metrics struct {
	AuthFailures    *Counter
	CutByLeader     *Counter // connections that the leader of a shard has closed
	Panics          *Counter // contained
	RepliesDropped  *Counter // because their connection is gone
	RelaxedAttaches *Counter
	MemoryRefused   *Counter   // requests over the limit on memory
	LogWrite        *Histogram // seconds a write to the log takes, its sync included
	Nodes           NodeTimes  // waits and holds by coordination node

	// LeasesLost is by LossCauses. The package serving adds to it at each scrape, and writes it.
	LeasesLost [len(LossCauses)]Counter
	// LeaseTransfers too.
	LeaseTransfers Counter
	// Preemptions too.
	Preemptions [len(PreemptionOutcomes)]Counter

	batchCommands, batchSeconds  *Histogram
	roundSeconds, prepareSeconds *Histogram
	expired                      *Counter
	ended                        [8]*Counter // sessions, by reason

	mu         sync.Mutex
	maxSeries  int
	collectors []func(*Page)
	replies    []*Replies
	closed     *Replies // the sum of those that were closed
}

// EndReasons are the reasons of a session's end as metrics and the log name them.
var EndReasons = map[protocol.EndReason]string{
	protocol.EndStopped: "stopped", protocol.EndExpired: "expired", protocol.EndKilled: "killed",
	protocol.EndNodeDropped: "node_dropped",
}

// New makes the metrics of a server.
func New() *Metrics {
	m := &Metrics{maxSeries: DefaultMaxSeries, closed: newReplies()}
	m.AuthFailures = m.Counter(AuthFailures)
	m.CutByLeader = m.Counter(ConnectionsClosed, "leader")
	m.Panics = m.Counter(Panics)
	m.RepliesDropped = m.Counter(RepliesDropped)
	m.RelaxedAttaches = m.Counter(RelaxedAttaches)
	m.MemoryRefused = m.Counter(MemoryRefusals)
	m.LogWrite = m.Histogram(LogWriteSeconds)
	m.batchCommands = m.Histogram(BatchCommands)
	m.batchSeconds = m.Histogram(BatchSeconds)
	m.roundSeconds = m.Histogram(ProcessRoundSeconds)
	m.prepareSeconds = m.Histogram(ProcessPrepareSeconds)
	m.expired = m.Counter(SessionsExpired)
	for reason, name := range EndReasons {
		m.ended[reason] = m.Counter(SessionsEnded, name)
	}
	m.Collect(m.writeReplies)
	m.Collect(writeProcess)
	return m
}

// SetMaxSeries bounds the series of each metric whose labels are names that clients choose.
func (m *Metrics) SetMaxSeries(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.maxSeries = n
}

// Collect has f called at each scrape. Scrapes do not overlap.
func (m *Metrics) Collect(f func(*Page)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.collectors = append(m.collectors, f)
}

// Counter makes a counter for one series of a metric.
func (m *Metrics) Counter(row *Metric, labels ...string) *Counter {
	c := new(Counter)
	m.Collect(func(p *Page) { p.Write(row, c.Get(), labels...) })
	return c
}

// Gauge has the value of one series read at each scrape.
func (m *Metrics) Gauge(row *Metric, value func() float64, labels ...string) {
	m.Collect(func(p *Page) { p.Write(row, value(), labels...) })
}

// Histogram makes a histogram for one series of a metric. It takes values in the metric's unit.
func (m *Metrics) Histogram(row *Metric, labels ...string) *Histogram {
	bounds := make([]float64, len(row.Bounds))
	for i, b := range row.Bounds {
		bounds[i] = row.scaled(b)
	}
	set := vm.NewSet()
	name := strings.TrimSpace(string(appendSeries(nil, row.Name, row.Labels, labels, "", "")))
	h := set.NewPrometheusHistogramExt(name, bounds)
	m.Collect(func(p *Page) { p.writeHistogram(row, set, labels) })
	return h
}

// WritePrometheus writes a page of all metrics. Each has its HELP and TYPE lines, and its series
// behind them.
func (m *Metrics) WritePrometheus(w io.Writer) {
	m.mu.Lock()
	collectors, most := m.collectors, m.maxSeries
	m.mu.Unlock()
	p := newPage(most)
	for _, f := range collectors {
		f(p)
	}
	p.writeTo(w)
}

// WritePage writes a page of what f writes, and of the process, for a program that is no instance.
func WritePage(w io.Writer, f func(*Page)) {
	p := newPage(DefaultMaxSeries)
	f(p)
	writeProcess(p)
	p.writeTo(w)
}

// SessionEnded counts the end of a session. The leader of its home shard calls it.
func (m *Metrics) SessionEnded(r protocol.EndReason) {
	if int(r) < len(m.ended) && m.ended[r] != nil {
		m.ended[r].Inc()
	}
	if r == protocol.EndExpired {
		m.expired.Inc()
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

func (m *Metrics) writeReplies(p *Page) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for kind := range protocol.Kind(countedKinds) {
		took := newSnapshot(RequestSeconds)
		m.closed.took[kind].addTo(&took)
		for _, r := range m.replies {
			r.took[kind].addTo(&took)
		}
		if took.count > 0 {
			p.writeDistribution(RequestSeconds, took, kind.String())
		}
		for st := range protocol.Status(countedStatuses) {
			n := m.closed.Of(kind, st)
			for _, r := range m.replies {
				n += r.Of(kind, st)
			}
			if n != 0 {
				p.Write(Requests, n, kind.String(), st.String())
			}
		}
	}
}
