package main

import (
	"io"
	"log/slog"
	"net"

	"github.com/signalbox-dev/signalbox/server/admin"
)

// off is the value of --admin for none.
const off = "off"

// serveAdmin serves metrics, health and profiles, within the limits of an instance's address for
// operators. Close ends it.
func serveAdmin(l net.Listener, cfg admin.Config, log *slog.Logger) io.Closer {
	s := admin.Server(admin.Handler(cfg), log)
	go func() { _ = s.Serve(admin.LimitListener(l)) }()
	return s
}
