package main

import (
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/release"
)

// TestVersionsAgree: a client names the release that it belongs to.
func TestVersionsAgree(t *testing.T) {
	minor, ok := strings.CutPrefix(client.Version, "signalbox-go/")
	if !ok || !strings.HasPrefix(release.TreeVersion, minor+".") {
		t.Errorf("the SDK calls itself %s in a tree of version %s", client.Version, release.TreeVersion)
	}
}
