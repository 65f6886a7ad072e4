package console

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

// TestWantedOwners: which owner a waiter wants units back from, and the rule.
func TestWantedOwners(t *testing.T) {
	s := openSite(t, nil)
	x := s.session(client.Description("high@a"))
	err := x.Create(t.Context(), "crane", 2, nil, client.ByPriority(0), client.Wanted(client.WantedHigher),
		client.Grace(time.Hour), client.MinHold(2*time.Hour))
	if err == nil {
		_, err = x.Acquire(t.Context(), "crane", client.Priority(8))
	}
	var low *client.Lease
	if err == nil {
		low, err = s.session(client.Description("low@a")).Acquire(t.Context(), "crane", client.Priority(2))
	}
	if err != nil {
		t.Fatal(err)
	}
	s.waiters("crane", 1, 1, client.Count(1), client.Priority(7))
	<-low.Wanted()
	p := s.get(semaphoreURL("/default", "crane"))
	p.wants(t, http.StatusOK, "an owner of a lower level", "it has 1h0m0s to yield, 2h0m0s after the grant at the earliest")
	for _, o := range mustDescribe(t, x, "crane").Owners {
		want := ""
		if o.Token == low.Token() {
			want = "wanted"
		}
		if got := p.cells(t, "owners", fmt.Sprint(o.Token))["Wanted"]; got != want {
			t.Errorf("owner %d: Wanted is %q, want %q", o.Token, got, want)
		}
	}
	if c := wantedCell(&client.Owner{Wanted: true, Silent: true}); c.Text != "wanted, silent" || c.Kind != "bad" {
		t.Errorf("a silent owner is shown as %+v", c)
	}
}
