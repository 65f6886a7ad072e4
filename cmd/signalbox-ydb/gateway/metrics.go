package gateway

import (
	"fmt"
	"io"
	"sync/atomic"
)

// Metrics count what a gateway does. They may be read at any time.
type Metrics struct {
	streams       atomic.Int64  // open streams of Session with a session
	sessions      atomic.Int64  // sessions that are kept attached, with a stream or without
	clusters      atomic.Int64  // connections to the cluster, one for each token
	outbox        atomic.Int64  // bytes of messages that wait for clients to read
	requests      atomic.Uint64 // requests on sessions
	refused       atomic.Uint64 // SessionStarts that failed
	tokensRefused atomic.Uint64 // tokens that the cluster refused when it was asked
	silent        atomic.Uint64 // streams that were ended because nothing came from their client
	expired       atomic.Uint64 // sessions that were stopped because their client did not return
}

// Write writes the metrics in Prometheus' text format.
func (m *Metrics) Write(w io.Writer) {
	for _, x := range []struct {
		name, kind string
		value      any
	}{
		{"signalbox_ydb_streams", "gauge", m.streams.Load()},
		{"signalbox_ydb_sessions", "gauge", m.sessions.Load()},
		{"signalbox_ydb_cluster_connections", "gauge", m.clusters.Load()},
		{"signalbox_ydb_outbox_bytes", "gauge", m.outbox.Load()},
		{"signalbox_ydb_requests_total", "counter", m.requests.Load()},
		{"signalbox_ydb_session_starts_failed_total", "counter", m.refused.Load()},
		{"signalbox_ydb_tokens_refused_total", "counter", m.tokensRefused.Load()},
		{"signalbox_ydb_streams_silent_total", "counter", m.silent.Load()},
		{"signalbox_ydb_sessions_expired_total", "counter", m.expired.Load()},
	} {
		fmt.Fprintf(w, "# TYPE %s %s\n%s %d\n", x.name, x.kind, x.name, x.value)
	}
}
