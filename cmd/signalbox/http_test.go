package main

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
)

// TestPlainHTTPWarns: a gateway that others reach without TLS says so when it starts.
func TestPlainHTTPWarns(t *testing.T) {
	for _, c := range []struct {
		addr  string
		tls   *tls.Config
		warns bool
	}{{"127.0.0.1:0", nil, false}, {"0.0.0.0:0", nil, true}, {"0.0.0.0:0", new(tls.Config), false}} {
		var log bytes.Buffer
		running, err := startHTTP(httpConfig{webConfig: webConfig{addr: c.addr, tls: c.tls, log: slog.New(slog.NewTextHandler(&log, nil)),
			client: client.Config{Endpoints: []string{"127.0.0.1:1"}}}})
		if err != nil {
			t.Fatal(err)
		}
		running.close()
		if got := strings.Contains(log.String(), "tokens can be read on the way"); got != c.warns {
			t.Errorf("on %s, with TLS: %t, it logs %q", c.addr, c.tls != nil, log.String())
		}
	}
}
