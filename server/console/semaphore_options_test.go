package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
)

// TestSlots: slots with their holders, lanes in the order in which they are served and why each
// waiter waits, and the holds that ended.
func TestSlots(t *testing.T) {
	s := openSite(t, nil)
	x := s.session(client.Description("owner@a"))
	slots := []client.Slot{{Name: "a0", Labels: []string{"old"}}, {Name: "a1", Labels: []string{"old"}},
		{Name: "b0", Labels: []string{"new"}}, {Name: "b1", Labels: []string{"new"}}}
	if err := x.Create(t.Context(), "gpus", 4, nil, client.SemaphoreConfig{Policy: client.PolicyPriority,
		Aging: time.Minute, Slots: slots}); err != nil {
		t.Fatal(err)
	}
	gone, err := s.session(client.Description("gone@a")).Acquire(t.Context(), "gpus", client.Slots("a0"))
	if err == nil {
		_, err = admin.OfNode(x.Node()).ForceRelease(t.Context(), "gpus", gone.Token(), gone.Token(), "test")
	}
	if err == nil {
		_, err = x.Acquire(t.Context(), "gpus", client.Count(2), client.Labels("new"), client.Priority(7))
	}
	if err == nil {
		err = x.Drain(t.Context(), "gpus", []string{"a1", "b1"})
	}
	if err != nil {
		t.Fatal(err)
	}
	s.waiters("gpus", 1, 1, client.Count(1), client.Labels("new"), client.Priority(2))
	s.waiters("gpus", 1, 1, client.Count(2), client.Labels("old"), client.Priority(9))
	here := semaphoreURL("/default", "gpus")
	p := s.get(here)
	p.wants(t, http.StatusOK, "the highest level", "a level up for each 1m of waiting", "1 held, 1 free, 1 draining, 1 drained",
		`<table id="slots" class="tiles">`, `<table id="timeline" class="timeline">`, "<title>gone@a, token ")
	for slot, want := range map[string]map[string]string{
		"a0": {"State": "free", "Held by": "–", "Labels": "old", "Action": "Drain"},
		"a1": {"State": "drained: not granted", "Action": "Undrain"},
		"b0": {"State": "held", "Held by": "owner@a", "Action": "Drain"},
		"b1": {"State": "draining: not granted once it is given back", "Action": "Undrain"},
	} {
		for title, text := range want {
			if got := p.cells(t, "slots", slot)[title]; got != text {
				t.Errorf("slot %s: %s is %q, want %q", slot, title, got, text)
			}
		}
	}
	if got := p.cells(t, "owners", fmt.Sprint(mustDescribe(t, x, "gpus").Owners[0].Token)); got["Slots"] != "b0, b1" || got["Asked with"] != "level 7" {
		t.Errorf("the owner is %v", got)
	}
	waiting := mustDescribe(t, x, "gpus").Waiters
	for i, want := range []map[string]string{
		{"Served": "1", "Lane": "level 9: only slots with old",
			"Why it waits": "It wants 2 slots, and there is 1 that it may have: it is not granted unless slots are added or undrained."},
		{"Served": "2", "Lane": "level 2: only slots with new",
			"Why it waits": "It is number 2 to be served. The only slot that it may have is held."},
	} {
		got := p.cells(t, "queue", fmt.Sprint(waiting[i].Place))
		for title, text := range want {
			if got[title] != text {
				t.Errorf("waiter %d: %s is %q, want %q", i, title, got[title], text)
			}
		}
	}
	if got := p.cells(t, "history", fmt.Sprint(gone.Token())); got["Because"] != "released by operator" || got["Slots"] != "a0" || got["Session"] != "gone@a" {
		t.Errorf("the hold that ended is %v", got)
	}
	if strings.Contains(p.body, "/action/resize") {
		t.Error("a list of slots is offered to be resized")
	}

	tab := s.open(here)
	tab.until("the page", func(name string, _ update) bool { return name == "view" })
	slot := func(verb string) string {
		return actionURL(verb, "node", "/default", "name", encodeName("gpus"), "slot", "a1")
	}
	s.act(slot("drain-slot"), "a1").wants(t, http.StatusOK, "The slot is drained.")
	s.act(slot("undrain-slot"), "a1").wants(t, http.StatusOK, "The slot may be granted again.")
	tab.until("the slot is held", func(_ string, u update) bool {
		for _, x := range u.Tables {
			for _, r := range x.Set {
				if x.ID == "slots" && r.Key == "a1" && r.Cells[slotState].Text == "held" {
					return true
				}
			}
		}
		return false
	})
	tab.close()
	s.get(actionURL("drain-slot", "node", "/default", "name", encodeName("gpus"), "slot", "z")).
		wants(t, http.StatusNotFound, "no such slot")
	s.get(actionURL("drain-slot", "node", "/default", "name", encodeName("gpus"))).wants(t, http.StatusNotFound, "no such slot")
}

func mustDescribe(t *testing.T, x *client.Session, name string) *client.Semaphore {
	t.Helper()
	sem, err := x.Node().Describe(t.Context(), name, client.IncludeOwners(), client.IncludeWaiters())
	if err != nil {
		t.Fatal(err)
	}
	return sem
}

// TestFairLanes: keys share by weight, and a list of waiters in lanes has one page, of at most 500.
func TestFairLanes(t *testing.T) {
	s := openSite(t, nil)
	x := s.holder()
	if err := x.Create(t.Context(), "licenses", 2, nil, client.SemaphoreConfig{Policy: client.PolicyFair,
		Weights: map[string]uint64{"ads": 2}}); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Acquire(t.Context(), "licenses", client.Count(2), client.Key("<ads>")); err != nil {
		t.Fatal(err)
	}
	s.waiters("licenses", 20, 1, client.Key("ads"))
	s.waiters("licenses", 1, 1)
	p := s.get(semaphoreURL("/default", "licenses"))
	p.wants(t, http.StatusOK, "keys in turn, by weight", "ads 2; others 1", "key “&lt;ads&gt;”", "no key", "It is number 3 to be served.",
		"More than 16 are served before it.", "No hold has ended yet.")
	if n := strings.Count(p.body, ">later<"); n != 5 {
		t.Errorf("%d waiters are behind the first 16, want 5", n)
	}
	if strings.Contains(p.body, `<table id="slots"`) {
		t.Error("units without names are shown as slots")
	}
}
