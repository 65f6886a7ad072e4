package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

// TestPreemptedOwners: which owner a waiter wants units back from, and the rule.
func TestPreemptedOwners(t *testing.T) {
	s := openSite(t, nil)
	x := s.session(client.Description("high@a"))
	err := x.Create(t.Context(), "crane", 2, nil, client.SemaphoreConfig{Policy: client.PolicyPriority, Preempt: client.PreemptLower,
		Grace: time.Hour, MinHold: 2 * time.Hour})
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
	<-low.Preempted()
	p := s.get(semaphoreURL("/default", "crane"))
	p.wants(t, http.StatusOK, "owners of a lower level", "within 1h 00m after 2h 00m of holding", "It is next. All units are held. 1 owner is preempted.")
	for _, o := range mustDescribe(t, x, "crane").Owners {
		want := "–"
		if o.Token == low.Token() {
			want = "preempted"
		}
		if got := p.cells(t, "owners", fmt.Sprint(o.Token))["Preempted"]; got != want {
			t.Errorf("owner %d: Preempted is %q, want %q", o.Token, got, want)
		}
	}
	if c := preemptedCell(&client.Owner{Preempted: true, Silent: true}); c.Text != "preempted, silent" || c.Kind != "bad" {
		t.Errorf("a silent owner is shown as %+v", c)
	}
	view := semaphoreView{sem: &client.Semaphore{}, owners: []client.Owner{{Token: 1, Preempted: true}, {Token: 2, Preempted: true, Silent: true, Description: "stopped"}}}
	if notes := view.whyNotes(); len(notes) != 1 || notes[0].Tone != "bad" || !strings.Contains(notes[0].Text, "token 2, “stopped”, was preempted") {
		t.Errorf("the notes about a silent owner are %+v", notes)
	}
}
