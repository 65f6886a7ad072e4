package server

import (
	"io"

	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/server/peer"
)

// registerMetrics adds the series that show live objects.
func registerMetrics(s *Server) {
	m := s.metrics
	m.NewGauge("signalbox_peer_messages_dropped", func() float64 { return float64(s.droppedMessages.Load()) })
	m.NewGauge("signalbox_memory_live_bytes", func() float64 { return float64(s.memory.live.Load()) })
	m.NewGauge("signalbox_memory_limit_bytes", func() float64 { return float64(s.memory.max) })
	m.RegisterMetricsWriter(func(w io.Writer) {
		metrics.Write(w, "signalbox_ready", "", s.Ready() == nil)
		hosts, routes, series, names := s.shards.all(), s.routing(), s.cfg.Limits.MaxSeries, showNames(s)
		writeShards(w, hosts)
		if names {
			writeSemaphores(w, hosts, routes.state, series)
		}
		writeQuotas(w, hosts, routes, series, names)
		writeProcesses(w, hosts)
		writeRollouts(w, hosts, routes.state, series, names)
		s.membership.WriteMetrics(w)
		if s.peers != nil {
			writePeers(w, s.peers.Stats())
		}
		metrics.Write(w, "signalbox_audit_events_dropped_total", "", s.audit.log.Lost())
		writeDisk(w, s.host)
	})
}

// showNames reports whether metrics show names that clients have chosen.
func showNames(s *Server) bool {
	if s.cfg.MetricsNames != "auto" {
		return s.cfg.MetricsNames == "on"
	}
	v := s.auth.Load()
	return s.cfg.Authorizer == nil && (v == nil || !v.On())
}

// writePeers shows the connections between instances.
func writePeers(w io.Writer, st peer.Stats) {
	metrics.WriteAll(w, "signalbox_peer_", "",
		`connections{way="in"}`, st.Inbound, `connections{way="out"}`, st.Outbound, "handshaking", st.Handshaking,
		"sent_bytes_total", st.BytesSent, "received_bytes_total", st.BytesReceived,
		`batches_total{what="sent"}`, st.BatchesSent, `batches_total{what="received"}`, st.BatchesReceived, `batches_total{what="dropped"}`, st.BatchesDropped,
		`batches_total{what="unsent"}`, st.BatchesUnsent,
		`chunks_total{what="sent"}`, st.ChunksSent, `chunks_total{what="received"}`, st.ChunksReceived,
		`messages_total{what="sent"}`, st.MessagesSent, `messages_total{what="received"}`, st.MessagesReceived, `messages_total{what="dropped"}`, st.MessagesDropped,
		`calls_total{what="sent"}`, st.CallsSent, `calls_total{what="received"}`, st.CallsReceived, `calls_total{what="refused"}`, st.CallsRefused,
		"dials_total", st.Dials, "dials_failed_total", st.DialsFailed, "accepted_total", st.Accepted, "accept_errors_total", st.AcceptErrors,
		`refused_total{reason="token"}`, st.RefusedToken, `refused_total{reason="cluster"}`, st.RefusedCluster, `refused_total{reason="address"}`, st.RefusedAddress,
		`refused_total{reason="version"}`, st.RefusedVersion, `refused_total{reason="garbage"}`, st.RefusedGarbage, `refused_total{reason="slow"}`, st.RefusedSlow,
		`refused_total{reason="busy"}`, st.RefusedBusy, "bad_frames_total", st.BadFrames, "silent_total", st.Silent, "panics_total", st.Panics,
	)
}
