package server

import (
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/cespare/xxhash/v2"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

const (
	countedKinds    = protocol.NumKinds
	countedStatuses = 16
)

// replyCounts counts replies by kind and status. Each goroutine that replies has its own, so that counting costs an uncontended addition.
type replyCounts struct {
	n [countedKinds][countedStatuses]atomic.Uint64
}

func (t *replyCounts) count(kind protocol.Kind, st protocol.Status) {
	if int(kind) >= countedKinds {
		kind = 0
	}
	t.n[kind][st&(countedStatuses-1)].Add(1)
}

// serverMetrics are this server's own: two servers in a process do not share them.
type serverMetrics struct {
	set    *metrics.Set
	server *Server

	authFailures, memoryRefused, leaderCut, panics, repliesDropped, relaxedAttaches *metrics.Counter
	ended                                                                           [8]*metrics.Counter
	batchCommands, batchSeconds, logWrite                                           *metrics.PrometheusHistogram
	roundSeconds, prepareSeconds                                                    *metrics.PrometheusHistogram

	mu      sync.Mutex
	replies []*replyCounts
	shared  *replyCounts
}

func newMetrics(s *Server) *serverMetrics {
	set := metrics.NewSet()
	m := &serverMetrics{set: set, server: s}
	m.authFailures = set.NewCounter("signalbox_auth_failures_total")
	m.leaderCut = set.NewCounter(`signalbox_connections_closed_total{reason="leader"}`)
	m.panics = set.NewCounter("signalbox_panics_total")
	m.repliesDropped = set.NewCounter("signalbox_replies_dropped_total")
	m.relaxedAttaches = set.NewCounter("signalbox_relaxed_attaches_total")
	m.memoryRefused = set.NewCounter("signalbox_memory_refusals_total")
	for reason, name := range endReasonNames {
		m.ended[reason] = set.NewCounter(fmt.Sprintf("signalbox_sessions_ended_total{reason=%q}", name))
	}
	m.batchCommands = set.NewPrometheusHistogramExt("signalbox_batch_commands", []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048})
	m.batchSeconds = set.NewPrometheusHistogramExt("signalbox_batch_seconds",
		[]float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10})
	m.logWrite = set.NewPrometheusHistogramExt("signalbox_log_write_seconds",
		[]float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10})
	rounds := []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	m.roundSeconds = set.NewPrometheusHistogramExt("signalbox_process_round_seconds", rounds)
	m.prepareSeconds = set.NewPrometheusHistogramExt("signalbox_process_prepare_seconds", rounds)
	set.NewGauge("signalbox_peer_messages_dropped", func() float64 { return float64(s.droppedMessages.Load()) })
	set.NewGauge("signalbox_memory_live_bytes", func() float64 { return float64(s.memory.live.Load()) })
	set.NewGauge("signalbox_memory_limit_bytes", func() float64 { return float64(s.memory.max) })
	set.NewGauge("signalbox_ready", func() float64 {
		if s.Ready() == nil {
			return 1
		}
		return 0
	})
	set.RegisterMetricsWriter(m.writeReplies)
	set.RegisterMetricsWriter(m.writeShards)
	set.RegisterMetricsWriter(m.writeSemaphores)
	set.RegisterMetricsWriter(m.writeQuotas)
	set.RegisterMetricsWriter(m.writeProcesses)
	set.RegisterMetricsWriter(m.writeRollouts)
	set.RegisterMetricsWriter(m.writeCluster)
	set.RegisterMetricsWriter(m.writeDisk)
	m.shared = m.newReplyCounts()
	return m
}

func (m *serverMetrics) newReplyCounts() *replyCounts {
	t := new(replyCounts)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.replies = append(m.replies, t)
	return t
}

func (m *serverMetrics) sessionEnded(r protocol.EndReason) {
	if int(r) < len(m.ended) && m.ended[r] != nil {
		m.ended[r].Inc()
	}
}

// batch measures one batch of requests by its size and by how long its first request took from the listener to here: one observation for hundreds of requests.
func (m *serverMetrics) batch(now time.Duration, origins []replica.Origin) {
	m.batchCommands.Update(float64(len(origins)))
	if at := origins[0].Tag &^ unloggedNote; at != 0 {
		m.batchSeconds.Update((now - time.Duration(at)).Seconds())
	}
}

func (m *serverMetrics) writeReplies(w io.Writer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for kind := range countedKinds {
		for st := range countedStatuses {
			var n uint64
			for _, t := range m.replies {
				n += t.n[kind][st].Load()
			}
			if n != 0 {
				fmt.Fprintf(w, "signalbox_requests_total{kind=%q,status=%q} %d\n", protocol.Kind(kind).String(), protocol.Status(st).String(), n)
			}
		}
	}
}

func (m *serverMetrics) writeShards(w io.Writer) {
	for _, d := range m.server.shards.all() {
		st := d.raft.Stats()
		leading := 0
		if st.Leading {
			leading = 1
		}
		hub := d.delivery.Semaphores.Stats()
		var size shard.Sizes
		d.raft.View(func(machine *shard.Machine) { size = machine.Sizes() })
		for _, v := range []struct {
			name  string
			value uint64
		}{
			{"signalbox_shard_leading", uint64(leading)},
			{"signalbox_shard_leader", st.Leader},
			{"signalbox_shard_term", st.Epoch >> 16},
			{"signalbox_shard_in_flight", uint64(st.InFlight)},
			{"signalbox_shard_applied_index", st.AppliedIndex},
			{"signalbox_shard_log_time_ms", st.LogTime},
			{"signalbox_shard_batches_total", st.Batches},
			{"signalbox_shard_commands_total", st.Commands},
			{"signalbox_shard_command_bytes_total", st.Bytes},
			{"signalbox_shard_refused_total", st.Refused},
			{"signalbox_shard_dropped_total", st.Dropped},
			{"signalbox_shard_undetermined_total", st.Undetermined},
			{"signalbox_shard_takeovers_total", st.TakeOvers},
			{"signalbox_shard_overloaded_total", st.Overloaded},
			{"signalbox_shard_barriers_total", st.Barriers},
			{"signalbox_shard_barrier_failures_total", st.BarrierFails},
			{"signalbox_shard_snapshots_total", st.Snapshots},
			{"signalbox_shard_waiting_bytes", uint64(st.WaitingBytes)},
			{"signalbox_shard_sessions", uint64(size.Sessions)},
			{"signalbox_shard_remote_sessions", uint64(size.RemoteSessions)},
			{"signalbox_shard_semaphores", uint64(size.Semaphores)},
			{"signalbox_shard_stuck_queues", uint64(size.Stuck)},
			{"signalbox_shard_streams", uint64(hub.Streams)},
			{"signalbox_shard_watches", uint64(hub.OneShots)},
			{"signalbox_shard_watches_fired_total", hub.Fired + hub.Invalidated},
			{"signalbox_shard_deltas_total", hub.Deltas},
			{"signalbox_shard_streams_behind_total", hub.FellBehind},
			{"signalbox_shard_streams_cut_total", hub.Cut},
		} {
			fmt.Fprintf(w, "%s{shard=\"%d\"} %d\n", v.name, d.id, v.value)
		}
	}
}

// writeSemaphores shows the acquire, wait and release counters of semaphores, and in nodes with detailed counters those of sessions. The number of series is
// bounded; signalbox_semaphore_series_truncated is 1 when some were left out.
func (m *serverMetrics) writeSemaphores(w io.Writer) {
	if !m.server.showNames() {
		return
	}
	left, cut := m.server.cfg.Limits.MaxSeries/3, 0 // three series to a set
	state := m.server.routing().state
	for _, d := range m.server.shards.all() {
		var rows []shard.CounterRow
		d.raft.View(func(machine *shard.Machine) {
			machine.Counters(func(r shard.CounterRow) bool {
				if left == 0 {
					cut = 1
					return false
				}
				left--
				if r.Truncated {
					cut = 1
				}
				rows = append(rows, r)
				return true
			})
		})
		for i := range rows {
			r := &rows[i]
			n, _ := state.Node(r.Node)
			labels := fmt.Sprintf("node=%q,semaphore=%q", labelValue(n.Path), labelValue(string(r.Name)))
			if r.Session != 0 {
				labels += fmt.Sprintf(",session=\"%d\"", r.Session)
			}
			fmt.Fprintf(w, "signalbox_semaphore_acquires_total{%s} %d\n", labels, r.Acquires)
			fmt.Fprintf(w, "signalbox_semaphore_waits_total{%s} %d\n", labels, r.Waits)
			fmt.Fprintf(w, "signalbox_semaphore_releases_total{%s} %d\n", labels, r.Releases)
			if r.Stuck {
				fmt.Fprintf(w, "signalbox_semaphore_stuck{%s} 1\n", labels)
			}
		}
	}
	fmt.Fprintf(w, "signalbox_semaphore_series_truncated %d\n", cut)
}

// showNames says whether metrics have the names of what clients made in them.
func (s *Server) showNames() bool {
	if s.cfg.MetricsNames != "auto" {
		return s.cfg.MetricsNames == "on"
	}
	v := s.auth.Load()
	return s.cfg.Authorizer == nil && (v == nil || !v.On())
}

// nodeLabel is a node's path, or its number where names are not shown.
func (s *Server) nodeLabel(id uint64, path string) string {
	if !s.showNames() {
		return strconv.FormatUint(id, 10)
	}
	return labelValue(path)
}

// labelValue makes any bytes fit for a label's value: printable, of a bounded length. What is cut short carries a hash of the whole, so that two names that
// begin alike do not make the same series twice.
func labelValue(s string) string {
	const most = 128
	q := strconv.QuoteToASCII(s)
	q = q[1 : len(q)-1]
	if len(q) > most {
		q = fmt.Sprintf("%s...#%016x", q[:most], xxhash.Sum64String(s))
	}
	return q
}
