package console

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestRateLimit: the tree of a limit with what is granted, used and waited for, and who uses it.
func TestRateLimit(t *testing.T) {
	s := openSite(t, nil, servertest.RealTime())
	s.get("/limits?node=/default").wants(t, http.StatusOK, "No rate limit here.")
	x := s.session(client.Description("caller@a"))
	for path, config := range map[string]ratelimit.Config{"api": {Rate: ratelimit.PerSecond(1000)}} {
		if _, err := ratelimit.Create(t.Context(), x, path, config); err != nil {
			t.Fatal(err)
		}
	}
	for path, config := range map[string]ratelimit.Config{"api/search": {Weight: 3}, "api/ads": {Min: 100}, "api/dry": {Shadow: true}} {
		if _, err := ratelimit.Create(t.Context(), x, path, config); err != nil {
			t.Fatal(err)
		}
	}
	here := objectURL(admin.ObjectLimit, "/default", "api")
	tab := s.open(here)
	tab.until("the page", func(name string, _ update) bool { return name == "view" })
	l, err := ratelimit.JoinSession(t.Context(), x, "api/search")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var calls sync.WaitGroup
	t.Cleanup(func() { cancel(); calls.Wait() })
	for range 20 { // more than the limit admits, so that some wait
		calls.Go(func() {
			for l.Wait(ctx, 100) == nil {
			}
		})
	}
	tab.until("what is granted, used and waited for", func(_ string, u update) bool {
		for _, x := range u.Tables {
			for _, r := range x.Set {
				if x.ID == "resources" && r.Key == "api/search" {
					c := r.Cells
					return c[2].Text == "1000" && c[3].Text != "0" && c[5].Kind == "num warn" && c[6].Text == "1"
				}
			}
		}
		return false
	})
	tab.close()
	p := s.get(here)
	p.wants(t, http.StatusOK, "Rate limit <code", "per second granted", `class="name d1"`, `href="`+strings.ReplaceAll(sessionURL("/default", x.ID()), "&", "&amp;")+`"`)
	if got := p.cells(t, "resources", "api/search"); got["Resource"] != "api/search" || got["Rate"] != "1000: weight 3" {
		t.Errorf("the resource is %v", got)
	}
	if got := p.cells(t, "resources", "api"); got["Uses"] != "1: 1 with calls" || got["Used"] == "0" || got["Allowed"] == "0" {
		t.Errorf("the root is %v", got)
	}
	if got := p.cells(t, "resources", "api/dry"); !strings.Contains(got["Served by"], "shadow: denies nothing") {
		t.Errorf("the resource in shadow is %v", got)
	}
	if got := p.cells(t, "resources", "api/ads"); got["Rate"] != "1000: at least 100" {
		t.Errorf("the resource with a guarantee is %v", got)
	}
	s.get("/limits?node=/default").wants(t, http.StatusOK, ">api<")
	s.get(sessionURL("/default", x.ID())).wants(t, http.StatusOK, "rate limit", `href="/limit?`)
	s.get(objectURL(admin.ObjectLimit, "/default", "api/search")).wants(t, http.StatusOK, ">api</a></li>")
	s.get(objectURL(admin.ObjectLimit, "/default", "none")).wants(t, http.StatusNotFound)
	s.get(objectURL(admin.ObjectLimit, "/default", "a b")).wants(t, http.StatusBadRequest, "illegal character")
}
