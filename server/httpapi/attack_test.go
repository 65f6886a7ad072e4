package httpapi

import (
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestQuotedStar: a star within the tag of something else is no star.
func TestQuotedStar(t *testing.T) {
	s := openSite(t, servertest.Start(t))
	s.ask("PUT", "/v1/config/flags", "", "mine").wants(200)
	for _, tag := range []string{`"a,*"`, `"a,*,b"`, `"a * b"`} {
		s.ask("PUT", "/v1/config/flags", "", "other", "If-Match: "+tag).wants(412, "version_mismatch")
		s.ask("GET", "/v1/config/flags", "", "", "If-None-Match: "+tag).wants(200)
	}
}
