package httpapi

import (
	"bytes"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestMetrics: requests are counted by route and status, refusals by code, sessions, streams and
// moves as they are.
func TestMetrics(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	one, two := openSite(t, srv), openSite(t, srv)
	page := func(s *site) string {
		var out bytes.Buffer
		metrics.WritePage(&out, s.api.WriteMetrics)
		return out.String()
	}
	one.ask("POST", "/v1/locks/a?ttl=1m", alice, "").wants(200)
	two.ask("POST", "/v1/locks/a", alice, "").wants(200) // it moves
	for range 2 {
		two.ask("POST", "/v1/locks/a?ttl=1m", bob, "").wants(409, "not_acquired")
	}
	two.ask("GET", "/elsewhere", "", "").wants(404, "not_found")
	known := "If-None-Match: " + two.ask("GET", "/v1/locks/b", "", "").header.Get("ETag")
	two.ask("GET", "/v1/locks/b", "", "", known).wants(304)
	stream := two.stream("/v1/locks/c", "")
	stream.wants("acquired")
	text := page(two)
	for _, want := range []string{
		`signalbox_http_requests_total{method="POST",route="/v1/locks/",status="200"} 1`,
		`signalbox_http_requests_total{method="POST",route="/v1/locks/",status="409"} 2`,
		`signalbox_http_requests_total{method="GET",route="/v1/locks/",status="304"} 1`,
		`signalbox_http_requests_total{status="404"} 1`,
		`signalbox_http_refusals_total{code="not_acquired"} 2`,
		"signalbox_http_session_moves_total 1", "signalbox_http_streams 1", "signalbox_http_held_requests 1", "signalbox_http_sessions 3",
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("the page lacks %s", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}
