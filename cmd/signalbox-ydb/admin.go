package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/signalbox-dev/signalbox/cmd/signalbox-ydb/gateway"
)

// off is the value of --admin for none.
const off = "off"

// adminTimeout bounds the headers of a request to the address for operators.
const adminTimeout = 5 * time.Second

// serveAdmin serves metrics, health and profiles. Close ends it.
func serveAdmin(address string, g *gateway.Gateway) (io.Closer, error) {
	if address == off {
		return io.NopCloser(nil), nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on --admin: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { g.Metrics().Write(w) })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	s := &http.Server{Handler: mux, ReadHeaderTimeout: adminTimeout}
	go func() {
		if err := s.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			_ = l.Close()
		}
	}()
	return s, nil
}
