package httpapi

import (
	"io"
	"net/http"
	"testing"
	"time"

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

// TestSlowBody: a body may take its 30 s; the time to try the cluster begins behind it.
func TestSlowBody(t *testing.T) {
	if testing.Short() {
		t.Skip("a body that takes more than 10 s")
	}
	s := openSite(t, servertest.Start(t, servertest.RealTime()))
	s.ask("GET", "/v1/locks", "", "").wants(200)
	r, w := io.Pipe()
	go func() {
		_, _ = w.Write([]byte("da"))
		time.Sleep(answerTimeout)
		_, _ = w.Write([]byte("ta"))
		_ = w.Close()
	}()
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/v1/locks/a?ttl=1m", r)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(sessionHeader, alice)
	resp, err := s.web.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 {
		t.Errorf("answered %d %s", resp.StatusCode, b)
	}
}
