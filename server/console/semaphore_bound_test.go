package console

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

// TestHoldsThatEnd: how long holds last at most, and when each ends.
func TestHoldsThatEnd(t *testing.T) {
	s := openSite(t, nil)
	x := s.session(client.Description("a@a"))
	err := x.Create(t.Context(), "job", 1, nil, client.SemaphoreConfig{MaxHold: 2 * time.Hour})
	if err == nil {
		_, err = x.Acquire(t.Context(), "job")
	}
	if err == nil {
		_, err = x.Acquire(t.Context(), "lock", client.Shared(), client.MaxHold(3*time.Hour))
	}
	if err == nil {
		_, err = s.session(client.Description("b@b")).Acquire(t.Context(), "lock", client.Shared())
	}
	if err == nil {
		_, err = x.Acquire(t.Context(), "plain", client.Exclusive())
	}
	if err != nil {
		t.Fatal(err)
	}
	token := func(name string, owner int) string { return fmt.Sprint(mustDescribe(t, x, name).Owners[owner].Token) }
	p := s.get(semaphoreURL("/default", "job"))
	p.wants(t, http.StatusOK, "Longest hold", "then it ends by itself", "Ends in")
	if got := p.cells(t, "owners", token("job", 0))["Ends in"]; got == "" || got == "–" {
		t.Errorf("the time that is left is %q", got)
	}
	p = s.get(semaphoreURL("/default", "lock"))
	if got := p.cells(t, "owners", token("lock", 1))["Ends in"]; got != "–" {
		t.Errorf("a hold without an end has %q left", got)
	}
	if got, ok := s.get(semaphoreURL("/default", "plain")).cells(t, "owners", token("plain", 0))["Ends in"]; ok {
		t.Errorf("a plain one has %q left", got)
	}
	if c := maxHoldFact(&client.SemaphoreConfig{MaxHold: time.Hour, Extend: true}); c.Cell.Note == maxHoldFact(&client.SemaphoreConfig{}).Cell.Note {
		t.Error("that owners may ask for more is not said")
	}
}
