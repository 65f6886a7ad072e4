package transport

import (
	"github.com/signalbox-dev/signalbox/server/metrics"
)

// Metrics are the transport's counters.
type Metrics struct {
	Accepted, Rejected, AcceptErrors, HandshakesFailed *metrics.Counter
	BytesIn, BytesOut, Writes                          *metrics.Counter

	// Connections that the transport closed, by reason.
	BadFrame, SlowReader, Idle, NoHello, SlowFrame, UnfinishedFrames, Throttled *metrics.Counter

	loopLag *metrics.Histogram
}

func newMetrics(t *Transport, m *metrics.Metrics) *Metrics {
	closed := func(reason string) *metrics.Counter { return m.Counter(metrics.ConnectionsClosed, reason) }
	m.Collect(func(p *metrics.Page) {
		secure := t.conns.secure.Load()
		if t.plain != nil {
			p.Write(metrics.Connections, t.conns.count.Load()-secure, "plain")
		}
		if t.tls != nil {
			p.Write(metrics.Connections, secure, "tls")
		}
		p.Write(metrics.ConnectionsLimit, t.cfg.Limits.Connections)
		p.Write(metrics.UnfinishedBytes, t.UnfinishedBytes())
		p.Write(metrics.UnreadBytes, t.UnreadBytes())
		p.Write(metrics.UnreadPageBytes, t.PageBytes())
	})
	return &Metrics{
		Accepted:         m.Counter(metrics.ConnectionsAccepted),
		Rejected:         m.Counter(metrics.ConnectionsRejected),
		AcceptErrors:     m.Counter(metrics.AcceptErrors),
		HandshakesFailed: m.Counter(metrics.HandshakesFailed),
		BytesIn:          m.Counter(metrics.ReceivedBytes),
		BytesOut:         m.Counter(metrics.SentBytes),
		Writes:           m.Counter(metrics.SocketWrites),
		BadFrame:         closed("bad_frame"),
		SlowReader:       closed("slow_reader"),
		Idle:             closed("idle"),
		NoHello:          closed("no_hello"),
		SlowFrame:        closed("slow_frame"),
		UnfinishedFrames: closed("unfinished_frames"),
		Throttled:        closed("throttled"),
		loopLag:          m.Histogram(metrics.LoopLag),
	}
}
