package gateway

import (
	"fmt"
	"io"
	"iter"
	"slices"
	"sync/atomic"
	"time"
)

// Metrics are the gateway's counters. They may be read at any time.
type Metrics struct {
	connections   atomic.Int64
	streams       atomic.Int64
	sessions      atomic.Int64
	clusters      atomic.Int64
	outbox        atomic.Int64
	requests      atomic.Uint64
	refused       atomic.Uint64
	tokensRefused atomic.Uint64
	silent        atomic.Uint64
	shed          atomic.Uint64
	expired       atomic.Uint64

	connectionsRefused atomic.Uint64

	certificateExpires func() time.Time // nil: there is no certificate
	logDropped         func() uint64    // nil: none is
}

// Metric is one of the metrics, as Prometheus knows it.
type Metric struct {
	Name string
	Kind string // gauge or counter
	Help string

	value func(m *Metrics) any // nil for a part that does not exist
}

var metrics = []Metric{
	{"signalbox_ydb_connections", "gauge", "Connections of clients.", func(m *Metrics) any {
		return m.connections.Load()
	}},
	{"signalbox_ydb_connections_refused_total", "counter",
		"Connections of clients that were refused because there were as many as may be.", func(m *Metrics) any {
			return m.connectionsRefused.Load()
		}},
	{"signalbox_ydb_streams", "gauge", "Open streams of Session with a session.", func(m *Metrics) any {
		return m.streams.Load()
	}},
	{"signalbox_ydb_sessions", "gauge", "Sessions that are kept attached, with a stream or without.",
		func(m *Metrics) any {
			return m.sessions.Load()
		}},
	{"signalbox_ydb_cluster_connections", "gauge",
		"Connections to the cluster, one for each token that the cluster knows; each has a socket to each instance.",
		func(m *Metrics) any {
			return m.clusters.Load()
		}},
	{"signalbox_ydb_outbox_bytes", "gauge", "Messages that wait for clients to read them, in bytes.",
		func(m *Metrics) any {
			return m.outbox.Load()
		}},
	{"signalbox_ydb_requests_total", "counter", "Requests on sessions.", func(m *Metrics) any {
		return m.requests.Load()
	}},
	{"signalbox_ydb_session_starts_failed_total", "counter", "SessionStarts that failed.", func(m *Metrics) any {
		return m.refused.Load()
	}},
	{"signalbox_ydb_tokens_refused_total", "counter", "Tokens that the cluster refused when it was asked.",
		func(m *Metrics) any {
			return m.tokensRefused.Load()
		}},
	{"signalbox_ydb_streams_silent_total", "counter", "Streams that were ended because nothing came from their client.",
		func(m *Metrics) any {
			return m.silent.Load()
		}},
	{"signalbox_ydb_streams_shed_total", "counter",
		"Streams that were ended because the gateway was short of memory, and they had the most of it.",
		func(m *Metrics) any {
			return m.shed.Load()
		}},
	{"signalbox_ydb_sessions_expired_total", "counter",
		"Sessions that were stopped because their client did not return in time.", func(m *Metrics) any {
			return m.expired.Load()
		}},
	{"signalbox_ydb_certificate_expiry_timestamp_seconds", "gauge",
		"When the certificate of --listen-tls-cert in use expires, in seconds since 1970.", (*Metrics).certificateExpiry},
	{"signalbox_ydb_log_dropped_total", "counter",
		"Lines of the log that were dropped, because standard error was not read or took no more.",
		(*Metrics).droppedLines},
}

func (m *Metrics) certificateExpiry() any {
	if m.certificateExpires == nil {
		return nil
	}
	return m.certificateExpires().Unix()
}

func (m *Metrics) droppedLines() any {
	if m.logDropped == nil {
		return uint64(0)
	}
	return m.logDropped()
}

// AllMetrics yields the metrics that a gateway has, in the order in which it writes them.
func AllMetrics() iter.Seq[Metric] { return slices.Values(metrics) }

// Write writes the metrics in Prometheus' text format.
func (m *Metrics) Write(w io.Writer) {
	for _, x := range metrics {
		if v := x.value(m); v != nil {
			fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n%s %d\n", x.Name, x.Help, x.Name, x.Kind, x.Name, v)
		}
	}
}
