package integration

import (
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
)

// TestConnectionLimits: the limits of connections, in all and of one address, are those that the
// configuration names, and the goodbye says which one is reached.
func TestConnectionLimits(t *testing.T) {
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
			if err := g.DecodeBody(h.Body); err != nil || g.Status != protocol.StatusOverloaded || !strings.Contains(g.Message, name) {
				t.Errorf("the third connection was told %+v, %v", g, err)
			}
		})
	}
}
