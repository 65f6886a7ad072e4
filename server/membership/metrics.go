package membership

import (
	"io"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/failuredetector"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// writeMember shows this instance in its cluster.
func writeMember(w io.Writer, m *Member) {
	state := m.Meta.State()
	if i, ok := state.Instance(m.instance); ok {
		for _, v := range []meta.Variant{meta.Offline, meta.Online, meta.Expelled} {
			metrics.Write(w, "signalbox_instance_state", metrics.Labels("state", v), i.Current.Variant == v)
			metrics.Write(w, "signalbox_instance_target", metrics.Labels("state", v), i.Target.Variant == v)
		}
		metrics.Write(w, "signalbox_instance_incarnation", "", i.Current.Incarnation)
	}
	taken, failed := m.governor.Steps()
	metrics.WriteAll(w, "signalbox_", "",
		"meta_leader", m.Meta.leaderInstance(state), "meta_leading", m.Meta.Leading(),
		"meta_applied_index", state.AppliedIndex(), "map_version", state.MapVersion(),
		"moves", len(state.Moves()),
		"governor_steps_total", taken, "governor_errors_total", failed,
	)
	m.detector.write(w)
	if m.registered.Load() {
		writeHealth(w, governor.Assess(m.observeNow()))
	}
}

// writeHealth shows what works and what may be lost, as this instance sees it.
func writeHealth(w io.Writer, h protocol.ClusterHealth) {
	for _, state := range []string{protocol.HealthHealthy, protocol.HealthDegraded, protocol.HealthBroken} {
		metrics.Write(w, "signalbox_cluster_health", metrics.Labels("state", state), h.State == state)
	}
	stopped, atRisk := 0, 0
	count := func(n *int, yes bool) {
		if yes {
			*n++
		}
	}
	count(&stopped, !h.Meta.Majority || !h.Confirmed)
	count(&atRisk, h.Meta.AtRisk())
	for i := range h.Shards {
		if g := &h.Shards[i]; !g.Idle {
			count(&stopped, !g.Majority || g.Leader == "")
			count(&atRisk, g.AtRisk())
		}
	}
	metrics.Write(w, "signalbox_raft_groups_unavailable", "", stopped)
	metrics.Write(w, "signalbox_raft_groups_at_risk", "", atRisk)
	metrics.Write(w, "signalbox_instances_unreachable", "", len(h.Unreachable))
	for _, c := range h.Replicasets {
		missing := 0
		if c.Buckets > 0 {
			missing = max(0, c.Configured-c.Copies)
		}
		metrics.Write(w, "signalbox_replicaset_missing_copies", metrics.Labels("replicaset", c.Replicaset), missing)
	}
}

var (
	actionNames = map[failuredetector.ActionKind]string{
		failuredetector.MarkOffline: "mark", failuredetector.GoOnline: "go_online", failuredetector.GoOffline: "go_offline",
	}
	outcomeNames = map[bool]string{true: "accepted", false: "refused"}
)

// write shows the failure detector's actions, and when the last one was.
func (d *detectorDriver) write(w io.Writer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, kind := range []failuredetector.ActionKind{failuredetector.MarkOffline, failuredetector.GoOnline, failuredetector.GoOffline} {
		for _, ok := range []bool{true, false} {
			act := detectorAction{kind, ok}
			labels := metrics.Labels("action", actionNames[kind], "outcome", outcomeNames[ok])
			metrics.Write(w, "signalbox_failure_detector_actions_total", labels, d.actions[act])
			if act == d.last {
				metrics.Write(w, "signalbox_failure_detector_last_action_age_seconds", labels, (d.member.Clock.Now() - d.lastAt).Seconds())
			}
		}
	}
}
