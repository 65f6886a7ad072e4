package transport

import (
	"fmt"

	"github.com/VictoriaMetrics/metrics"
)

// Metrics are the transport's counters.
type Metrics struct {
	Accepted, Rejected, AcceptErrors, HandshakesFailed *metrics.Counter
	BytesIn, BytesOut, Writes                          *metrics.Counter

	// Connections that the transport closed, by reason.
	BadFrame, SlowReader, Idle, NoHello, SlowFrame, UnfinishedFrames, Throttled *metrics.Counter

	loopLag *metrics.PrometheusHistogram
}

func newMetrics(t *Transport, set *metrics.Set) *Metrics {
	closed := func(reason string) *metrics.Counter {
		return set.NewCounter(fmt.Sprintf("signalbox_connections_closed_total{reason=%q}", reason))
	}
	set.NewGauge("signalbox_connections", func() float64 { return float64(t.Connections()) })
	set.NewGauge("signalbox_connections_limit", func() float64 { return float64(t.cfg.Limits.Connections) })
	set.NewGauge("signalbox_unfinished_frame_bytes", func() float64 { return float64(t.UnfinishedBytes()) })
	set.NewGauge("signalbox_unread_bytes", func() float64 { return float64(t.UnreadBytes()) })
	return &Metrics{
		Accepted:         set.NewCounter("signalbox_connections_accepted_total"),
		Rejected:         set.NewCounter("signalbox_connections_rejected_total"),
		AcceptErrors:     set.NewCounter("signalbox_accept_errors_total"),
		HandshakesFailed: set.NewCounter("signalbox_tls_handshakes_failed_total"),
		BytesIn:          set.NewCounter("signalbox_received_bytes_total"),
		BytesOut:         set.NewCounter("signalbox_sent_bytes_total"),
		Writes:           set.NewCounter("signalbox_writes_total"),
		BadFrame:         closed("bad_frame"),
		SlowReader:       closed("slow_reader"),
		Idle:             closed("idle"),
		NoHello:          closed("no_hello"),
		SlowFrame:        closed("slow_frame"),
		UnfinishedFrames: closed("unfinished_frames"),
		Throttled:        closed("excess"),
		loopLag:          set.NewPrometheusHistogramExt("signalbox_loop_lag_seconds", []float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1, 5}),
	}
}
