package serving

import (
	"io"

	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// writeShards shows the shards that have a replica here.
func writeShards(w io.Writer, shards []*Shard) {
	for _, d := range shards {
		st, hub := d.Raft().Stats(), d.delivery.Semaphores.Stats()
		var size shard.Sizes
		d.Raft().View(func(machine *shard.Machine) { size = machine.Sizes() })
		metrics.WriteAll(w, "signalbox_shard_", metrics.Labels("shard", d.ID()),
			"leading", st.Leading,
			"leader", st.Leader,
			"term", st.Epoch>>16,
			"in_flight", st.InFlight,
			"applied_index", st.AppliedIndex,
			"log_time_ms", st.LogTime,
			"batches_total", st.Batches,
			"commands_total", st.Commands,
			"command_bytes_total", st.Bytes,
			"refused_total", st.Refused,
			"dropped_total", st.Dropped,
			"undetermined_total", st.Undetermined,
			"takeovers_total", st.TakeOvers,
			"overloaded_total", st.Overloaded,
			"barriers_total", st.Barriers,
			"barrier_failures_total", st.BarrierFails,
			"snapshots_total", st.Snapshots,
			"waiting_bytes", st.WaitingBytes,
			"sessions", size.Sessions,
			"remote_sessions", size.RemoteSessions,
			"semaphores", size.Semaphores,
			"stuck_queues", size.Stuck,
			"streams", hub.Streams,
			"watches", hub.OneShots,
			"watches_fired_total", hub.Fired+hub.Invalidated,
			"deltas_total", hub.Deltas,
			"streams_behind_total", hub.FellBehind,
			"streams_cut_total", hub.Cut,
		)
	}
}

// writeSemaphores shows the counters of semaphores, and in nodes with detailed counters those of
// sessions. most bounds the series; signalbox_semaphore_series_truncated is 1 if some were left
// out.
func writeSemaphores(w io.Writer, shards []*Shard, state *meta.State, most int) {
	budget := metrics.Budget{Left: most / 3} // a row has three series
	for _, d := range shards {
		var rows []shard.CounterRow
		d.Raft().View(func(machine *shard.Machine) {
			machine.Counters(func(r shard.CounterRow) bool {
				if !budget.Take(1) {
					return false
				}
				budget.Cut = budget.Cut || r.Truncated
				rows = append(rows, r)
				return true
			})
		})
		for i := range rows {
			r := &rows[i]
			n, _ := state.Node(r.Node)
			labels := metrics.Labels("node", metrics.Label(n.Path), "semaphore", metrics.Label(string(r.Name)))
			if r.Session != 0 {
				labels += "," + metrics.Labels("session", r.Session)
			}
			metrics.WriteAll(w, "signalbox_semaphore_", labels,
				"acquires_total", r.Acquires, "waits_total", r.Waits, "releases_total", r.Releases,
			)
			if r.Stuck {
				metrics.Write(w, "signalbox_semaphore_stuck", labels, true)
			}
		}
	}
	metrics.Write(w, "signalbox_semaphore_series_truncated", "", budget.Cut)
}
