package server

import (
	"io"

	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/server/peer"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// registerMetrics adds the series that show live objects.
func registerMetrics(s *Server) {
	m := s.metrics
	m.NewGauge("signalbox_peer_messages_dropped", func() float64 { return float64(s.hosting.DroppedMessages()) })
	m.NewGauge("signalbox_memory_live_bytes", func() float64 { return float64(s.memory.live.Load()) })
	m.NewGauge("signalbox_memory_limit_bytes", func() float64 { return float64(s.memory.max) })
	m.RegisterMetricsWriter(func(w io.Writer) {
		metrics.Write(w, "signalbox_ready", "", s.Ready() == nil)
		s.serving.WriteMetrics(w, showNames(s))
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
	v := s.requests.Auth()
	return s.cfg.Authorizer == nil && (v == nil || !v.On())
}

// writePeers shows the connections between instances.
func writePeers(w io.Writer, st *peer.Stats) {
	metrics.WriteAll(w, "signalbox_peer_", "",
		`connections{way="in"}`, st.Inbound.Load(), `connections{way="out"}`, st.Outbound.Load(), "handshaking", st.Handshaking.Load(),
		"sent_bytes_total", st.BytesSent.Load(), "received_bytes_total", st.BytesReceived.Load(),
		`batches_total{what="sent"}`, st.BatchesSent.Load(), `batches_total{what="received"}`, st.BatchesReceived.Load(), `batches_total{what="dropped"}`, st.BatchesDropped.Load(),
		`batches_total{what="unsent"}`, st.BatchesUnsent.Load(),
		`chunks_total{what="sent"}`, st.ChunksSent.Load(), `chunks_total{what="received"}`, st.ChunksReceived.Load(),
		`messages_total{what="sent"}`, st.MessagesSent.Load(), `messages_total{what="received"}`, st.MessagesReceived.Load(), `messages_total{what="dropped"}`, st.MessagesDropped.Load(),
		`calls_total{what="sent"}`, st.CallsSent.Load(), `calls_total{what="received"}`, st.CallsReceived.Load(), `calls_total{what="refused"}`, st.CallsRefused.Load(),
		"dials_total", st.Dials.Load(), "dials_failed_total", st.DialsFailed.Load(), "accepted_total", st.Accepted.Load(), "accept_errors_total", st.AcceptErrors.Load(),
		`refused_total{reason="token"}`, st.RefusedToken.Load(), `refused_total{reason="cluster"}`, st.RefusedCluster.Load(), `refused_total{reason="address"}`, st.RefusedAddress.Load(),
		`refused_total{reason="version"}`, st.RefusedVersion.Load(), `refused_total{reason="garbage"}`, st.RefusedGarbage.Load(), `refused_total{reason="slow"}`, st.RefusedSlow.Load(),
		`refused_total{reason="busy"}`, st.RefusedBusy.Load(), "bad_frames_total", st.BadFrames.Load(), "silent_total", st.Silent.Load(), "panics_total", st.Panics.Load(),
	)
}

// writeDisk shows the disk of the log.
func writeDisk(w io.Writer, h *replica.Host) {
	metrics.Write(w, "signalbox_log_write_waiting_seconds", "", h.DiskWaiting().Seconds())
	if sp, ok := h.Space(); ok {
		metrics.Write(w, "signalbox_disk_free_bytes", "", sp.Free)
		metrics.Write(w, "signalbox_disk_bytes", "", sp.Total)
	}
}
