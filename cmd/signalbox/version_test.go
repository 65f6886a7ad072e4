package main

import (
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server"
)

// TestVersionsAgree: a client names the release that it belongs to.
func TestVersionsAgree(t *testing.T) {
	release, ok := strings.CutPrefix(client.Version, "signalbox-go/")
	if !ok || !strings.HasPrefix(server.DefaultVersion, release+".") {
		t.Errorf("the SDK calls itself %s in a tree of version %s", client.Version, server.DefaultVersion)
	}
}
