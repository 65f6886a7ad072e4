package server

import (
	"fmt"
	"io"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/failuredetector"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// writeCluster shows how this instance stands in its cluster, and what goes on between instances.
func (m *serverMetrics) writeCluster(w io.Writer) {
	s := m.server
	number := func(name string, value any) { fmt.Fprintf(w, "%s %v\n", name, value) }
	state := s.meta.State()
	if i, ok := state.Instance(s.instance); ok {
		for _, v := range []meta.Variant{meta.Offline, meta.Online, meta.Expelled} {
			fmt.Fprintf(w, "signalbox_instance_state{state=%q} %d\n", v, boolToInt(i.Current.Variant == v))
			fmt.Fprintf(w, "signalbox_instance_target{state=%q} %d\n", v, boolToInt(i.Target.Variant == v))
		}
		number("signalbox_instance_incarnation", i.Current.Incarnation)
	}
	var leader uint64
	if rep := s.meta.current(); rep != nil {
		for _, r := range state.MetaShard().Replicas {
			if r.Replica == rep.LeaderReplica() {
				leader = r.Instance
			}
		}
	}
	number("signalbox_meta_leader", leader)
	number("signalbox_meta_leading", boolToInt(s.meta.Leading()))
	number("signalbox_meta_applied_index", state.AppliedIndex())
	number("signalbox_map_version", state.MapVersion())
	number("signalbox_moves", len(state.Moves()))
	if g := s.governor; g != nil {
		taken, failed := g.Steps()
		number("signalbox_governor_steps_total", taken)
		number("signalbox_governor_errors_total", failed)
	}
	number("signalbox_audit_events_dropped_total", s.audit.log.Lost())
	s.detector.write(w)
	m.writePeers(w)
	if s.registered.Load() {
		m.writeHealth(w)
	}
}

// writeHealth shows what works and what may be lost, as this instance sees it.
func (m *serverMetrics) writeHealth(w io.Writer) {
	h := governor.Assess(m.server.observeNow())
	for _, state := range []string{protocol.HealthHealthy, protocol.HealthDegraded, protocol.HealthBroken} {
		fmt.Fprintf(w, "signalbox_cluster_health{state=%q} %d\n", state, boolToInt(h.State == state))
	}
	stopped := boolToInt(!h.Meta.Majority || !h.Confirmed)
	thin := boolToInt(h.Meta.AtRisk())
	for i := range h.Shards {
		if g := &h.Shards[i]; !g.Idle {
			stopped += boolToInt(!g.Majority || g.Leader == "")
			thin += boolToInt(g.AtRisk())
		}
	}
	fmt.Fprintf(w, "signalbox_raft_groups_unavailable %d\n", stopped)
	fmt.Fprintf(w, "signalbox_raft_groups_at_risk %d\n", thin)
	fmt.Fprintf(w, "signalbox_instances_unreachable %d\n", len(h.Unreachable))
	for _, c := range h.Replicasets {
		missing := 0
		if c.Buckets > 0 {
			missing = max(0, c.Configured-c.Copies)
		}
		fmt.Fprintf(w, "signalbox_replicaset_missing_copies{replicaset=%q} %d\n", c.Replicaset, missing)
	}
}

// write writes the failure detector's actions, and when the last one was.
func (y *detectorDriver) write(w io.Writer) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, kind := range []failuredetector.ActionKind{failuredetector.MarkOffline, failuredetector.GoOnline, failuredetector.GoOffline} {
		for _, ok := range []bool{true, false} {
			act := detectorAction{kind, ok}
			labels := fmt.Sprintf("{action=%q,outcome=%q}", actionNames[kind], outcomeNames[ok])
			fmt.Fprintf(w, "signalbox_failure_detector_actions_total%s %d\n", labels, y.actions[act])
			if act == y.last {
				fmt.Fprintf(w, "signalbox_failure_detector_last_action_age_seconds%s %.3f\n", labels, (y.server.clock.Now() - y.lastAt).Seconds())
			}
		}
	}
}

var (
	actionNames  = map[failuredetector.ActionKind]string{failuredetector.MarkOffline: "mark", failuredetector.GoOnline: "go_online", failuredetector.GoOffline: "go_offline"}
	outcomeNames = map[bool]string{true: "accepted", false: "refused"}
)

// writePeers shows the links between instances.
func (m *serverMetrics) writePeers(w io.Writer) {
	if m.server.peers == nil {
		return
	}
	st := m.server.peers.Stats()
	for _, v := range []struct {
		name  string
		value any
	}{
		{`connections{way="in"}`, st.Inbound}, {`connections{way="out"}`, st.Outbound}, {"handshaking", st.Handshaking},
		{"sent_bytes_total", st.BytesSent}, {"received_bytes_total", st.BytesReceived},
		{`batches_total{what="sent"}`, st.BatchesSent}, {`batches_total{what="received"}`, st.BatchesReceived}, {`batches_total{what="dropped"}`, st.BatchesDropped},
		{`batches_total{what="unsent"}`, st.BatchesUnsent},
		{`chunks_total{what="sent"}`, st.ChunksSent}, {`chunks_total{what="received"}`, st.ChunksReceived},
		{`messages_total{what="sent"}`, st.MessagesSent}, {`messages_total{what="received"}`, st.MessagesReceived}, {`messages_total{what="dropped"}`, st.MessagesDropped},
		{`calls_total{what="sent"}`, st.CallsSent}, {`calls_total{what="received"}`, st.CallsReceived}, {`calls_total{what="refused"}`, st.CallsRefused},
		{"dials_total", st.Dials}, {"dials_failed_total", st.DialsFailed}, {"accepted_total", st.Accepted}, {"accept_errors_total", st.AcceptErrors},
		{`refused_total{reason="token"}`, st.RefusedToken}, {`refused_total{reason="cluster"}`, st.RefusedCluster}, {`refused_total{reason="address"}`, st.RefusedAddress},
		{`refused_total{reason="version"}`, st.RefusedVersion}, {`refused_total{reason="garbage"}`, st.RefusedGarbage}, {`refused_total{reason="slow"}`, st.RefusedSlow},
		{`refused_total{reason="busy"}`, st.RefusedBusy}, {"bad_frames_total", st.BadFrames}, {"silent_total", st.Silent}, {"panics_total", st.Panics},
	} {
		fmt.Fprintf(w, "signalbox_peer_%s %v\n", v.name, v.value)
	}
}

func boolToInt(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
