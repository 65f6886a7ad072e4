package main

import (
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
)

// TestCertificatesAreReread: SIGHUP stops no instance that has a certificate, whatever it is for.
func TestCertificatesAreReread(t *testing.T) {
	found := 0
	for _, s := range settings.OfServe {
		if !strings.HasSuffix(s.Flag, "-tls-cert") {
			continue
		}
		found++
		if !rereads(map[string]string{s.Flag: "file.pem"}) {
			t.Errorf("an instance with --%s alone ends at SIGHUP", s.Flag)
		}
	}
	if found < 4 {
		t.Errorf("%d settings of certificates were found, want those of listen, cluster, console and http", found)
	}
}
