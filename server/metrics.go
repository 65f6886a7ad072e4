package server

import (
	"math"

	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/server/peer"
	"github.com/signalbox-dev/signalbox/server/release"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// registerReadiness adds the series that are there while the server starts: an alert about an
// instance that does not serve must not be silent about one that cannot start.
func registerReadiness(s *Server) {
	s.metrics.Collect(func(p *metrics.Page) {
		p.Write(metrics.Ready, s.Ready() == nil)
		p.Write(metrics.BuildInfo, true, metrics.BuildLabels(s.cfg.Version, release.Current().Commit)...)
	})
}

// registerMetrics adds the series that show live objects.
func registerMetrics(s *Server) {
	m := s.metrics
	m.SetMaxSeries(s.cfg.Limits.MaxSeries)
	m.Collect(func(p *metrics.Page) {
		p.Write(metrics.MemoryLive, s.memory.Live())
		p.Write(metrics.MemoryLimit, s.memory.Max())
		p.Write(metrics.ShardMessagesDropped, s.hosting.DroppedMessages())
		p.Write(metrics.AuditDropped, s.audit.log.Lost())
		p.Write(metrics.LogDropped, logDropped(s))
		writeDisk(p, s.host)
		writeTokens(p, s)
		for _, x := range s.issuers.Status() {
			p.Write(metrics.TrustKeysAge, x.Age.Seconds(), x.Trust)
			p.Write(metrics.TrustFetchFailures, x.Failed, x.Trust)
		}
		writeBackups(p, s)
		paths, names := shownNames(s)
		s.serving.WriteMetrics(p, paths, names)
		s.membership.WriteMetrics(p)
		if s.peers != nil {
			writePeers(p, s.peers.Stats())
		}
	})
}

func logDropped(s *Server) uint64 {
	if s.cfg.LogDropped == nil {
		return 0
	}
	return s.cfg.LogDropped()
}

// shownNames are which names that clients have chosen metrics show: the paths of nodes, and the
// names of semaphores and rollouts.
func shownNames(s *Server) (paths, names bool) {
	switch s.cfg.MetricsNames {
	case "on":
		return true, true
	case "nodes":
		return true, false
	case "off":
		return false, false
	}
	v := s.requests.Auth()
	open := s.cfg.Authorizer == nil && (v == nil || !v.On())
	return open, open
}

// writePeers shows the connections between instances.
func writePeers(p *metrics.Page, st *peer.Stats) {
	p.Write(metrics.PeerConnections, st.Inbound.Load(), "in")
	p.Write(metrics.PeerConnections, st.Outbound.Load(), "out")
	p.Write(metrics.PeerHandshaking, st.Handshaking.Load())
	p.Write(metrics.PeerSentBytes, st.BytesSent.Load())
	p.Write(metrics.PeerReceivedBytes, st.BytesReceived.Load())
	p.Write(metrics.PeerBatches, st.BatchesSent.Load(), "sent")
	p.Write(metrics.PeerBatches, st.BatchesReceived.Load(), "received")
	p.Write(metrics.PeerBatches, st.BatchesDropped.Load(), "dropped")
	p.Write(metrics.PeerBatches, st.BatchesUnsent.Load(), "unsent")
	p.Write(metrics.PeerChunks, st.ChunksSent.Load(), "sent")
	p.Write(metrics.PeerChunks, st.ChunksReceived.Load(), "received")
	p.Write(metrics.PeerMessages, st.MessagesSent.Load(), "sent")
	p.Write(metrics.PeerMessages, st.MessagesReceived.Load(), "received")
	p.Write(metrics.PeerMessages, st.MessagesDropped.Load(), "dropped")
	p.Write(metrics.PeerCalls, st.CallsSent.Load(), "sent")
	p.Write(metrics.PeerCalls, st.CallsReceived.Load(), "received")
	p.Write(metrics.PeerCalls, st.CallsRefused.Load(), "refused")
	p.Write(metrics.PeerDials, st.Dials.Load())
	p.Write(metrics.PeerDialsFailed, st.DialsFailed.Load())
	p.Write(metrics.PeerAccepted, st.Accepted.Load())
	p.Write(metrics.PeerAcceptErrors, st.AcceptErrors.Load())
	p.Write(metrics.PeerRefused, st.RefusedToken.Load(), "token")
	p.Write(metrics.PeerRefused, st.RefusedCluster.Load(), "cluster")
	p.Write(metrics.PeerRefused, st.RefusedAddress.Load(), "address")
	p.Write(metrics.PeerRefused, st.RefusedVersion.Load(), "version")
	p.Write(metrics.PeerRefused, st.RefusedGarbage.Load(), "garbage")
	p.Write(metrics.PeerRefused, st.RefusedSlow.Load(), "slow")
	p.Write(metrics.PeerRefused, st.RefusedBusy.Load(), "busy")
	p.Write(metrics.PeerBadFrames, st.BadFrames.Load())
	p.Write(metrics.PeerSilent, st.Silent.Load())
	p.Write(metrics.PeerPanics, st.Panics.Load())
}

// writeTokens shows when the first token expires; nothing if none does.
func writeTokens(p *metrics.Page, s *Server) {
	first := uint64(math.MaxUint64)
	list, _ := s.meta.State().Tokens()
	for i := range list {
		if at := list[i].ExpiresAt; at != 0 {
			first = min(first, at)
		}
	}
	if first != math.MaxUint64 {
		p.Write(metrics.TokenExpiry, float64(first)/1000)
	}
}

// writeBackups shows how long ago each shard was read for a backup. Of a shard that this instance
// leads and was not read from here, that is as long as the shard is old: another instance may have
// been asked. The meta shard has no log time, and its age is forever.
func writeBackups(p *metrics.Page, s *Server) {
	write := func(id uint64, leads bool, old float64) {
		age, read := s.hosting.Backups.Age(id)
		switch {
		case read:
			p.Write(metrics.BackupAge, age.Seconds(), metrics.ID(id))
		case leads:
			p.Write(metrics.BackupAge, old, metrics.ID(id))
		}
	}
	write(meta.MetaShardID, s.meta.Leading(), math.Inf(1))
	for _, d := range s.hosting.Shards.All() {
		write(d.ID(), d.Replica().Leading(), float64(d.Replica().LogTime())/1000)
	}
}

// writeDisk shows the disk of the log.
func writeDisk(p *metrics.Page, h *replica.Host) {
	p.Write(metrics.LogWriteWaiting, h.DiskWaiting().Seconds())
	size := h.LogSize()
	p.Write(metrics.LogBytes, size.Bytes)
	p.Write(metrics.LogSegments, size.Segments)
	if sp, ok := h.Space(); ok {
		p.Write(metrics.DiskFree, sp.Bytes.Free)
		p.Write(metrics.DiskSize, sp.Bytes.Total)
		if sp.Files.Total > 0 {
			p.Write(metrics.DiskFilesFree, sp.Files.Free)
			p.Write(metrics.DiskFiles, sp.Files.Total)
		}
	}
}
