package integration

import (
	"net/http"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
)

// TestConnectionLimits: the limits of connections, in all and of one address, are those that the
// configuration names, and the goodbye says which one is reached.
func TestConnectionLimits(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*server.Limits){
		"server has 2 connections":        func(l *server.Limits) { l.MaxConnections = 2 },
		"2 connections from this address": func(l *server.Limits) { l.MaxConnectionsPerAddress = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, func(c *server.Config) { set(&c.Limits) })
			connect(t, s)
			connect(t, s)
			h := dial(t, s).find("goodbye", func(h protocol.Header) bool { return h.Kind == protocol.KindGoodbye })
			var g protocol.Goodbye
			if err := protocol.DecodeBody(&g, h.Body); err != nil || g.Status != protocol.StatusOverloaded || !strings.Contains(g.Message, name) {
				t.Errorf("the third connection was told %+v, %v", g, err)
			}
		})
	}
}

// TestOperatorsHosts: the operators' address is reached under the names of the instance's addresses
// and those that its configuration adds; a name that somebody else pointed there shows nothing.
func TestOperatorsHosts(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) {
		c.Admin, c.Advertise, c.AdminHosts = "127.0.0.1:0", "db-1.example.com:7070", []string{"metrics.example.com"}
	})
	for host, want := range map[string]int{"db-1.example.com": 200, "metrics.example.com:7072": 200, "127.0.0.1": 200,
		"rebound.example.net:7072": http.StatusMisdirectedRequest} {
		for _, path := range []string{"/metrics", "/healthz", "/debug/pprof/cmdline"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.AdminAddr()+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = host
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s of host %s: %d, want %d", path, host, resp.StatusCode, want)
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
