package console

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestAuditPage: what an operator does is on the page, live, for those with the right.
func TestAuditPage(t *testing.T) {
	log := filepath.Join(t.TempDir(), "audit.log")
	s := openSite(t, nil, withAuth(), servertest.Config(func(c *server.Config) { c.Audit = log }))
	a := s.administrator()
	if _, err := a.Grant(t.Context(), "alice", "/default", "admin"); err != nil {
		t.Fatal(err)
	}
	alice, err := a.CreateToken(t.Context(), "", "alice")
	if err != nil {
		t.Fatal(err)
	}
	s.login(alice.Secret).wants(t, 303)
	if page := s.get("/nodes"); page.status != 200 || strings.Contains(page.body, `href="/audit"`) {
		t.Errorf("answered %d, and the audit log is offered without the right", page.status)
	}
	s.get("/audit").wants(t, 200, "needs the right admin on the path /")

	s.login(adminToken).wants(t, 303)
	s.get("/nodes").wants(t, 200, `href="/audit"`)
	x := s.open("/audit")
	x.until("the events so far", func(name string, u update) bool {
		keys, _ := keysOf(u, "events")
		return name == "view" && len(keys) > 0
	})
	victim := s.session()
	id := strconv.FormatUint(victim.ID(), 10)
	s.act(actionURL("kill-session", "node", "/default", "id", id), id).wants(t, 200, "The session is killed.")
	x.until("the event", func(_ string, u update) bool {
		for _, table := range u.Tables {
			for _, r := range table.Set {
				if r.Cells[0].Text == "kill session" && r.Cells[5].Text == "asked" &&
					r.Cells[2].Note == "via console" &&
					strings.Contains(r.Cells[3].Text, "session "+id) {
					return r.Cells[4].Text == "host is broken"
				}
			}
		}
		return false
	})
	s.get("/audit").wants(t, 200, "kill session", "host is broken", "via console")
	if _, err := a.CreateToken(t.Context(), alice.ID, "alice"); err == nil {
		t.Fatal("a token was made twice")
	}
	if page := s.get("/audit?outcome=refused&prefix=alice"); page.status != 200 ||
		strings.Contains(page.body, "kill session") ||
		!strings.Contains(page.body, "auth token create") || !strings.Contains(page.body, `>refused<small>`) {
		t.Errorf("what was refused to alice: %d, %s", page.status, page.body)
	}
}

// TestNoAuditLog: the page says that nothing is kept, and how to keep it.
func TestNoAuditLog(t *testing.T) {
	s := openSite(t, nil)
	s.get("/audit").wants(t, 200, "No instance writes an audit log. Start them with --audit")
	s = openSite(t, nil, servertest.Config(func(c *server.Config) { c.Audit = "stderr" }))
	s.get("/audit").wants(t, 200, "to standard error")
}

// TestAuditEvents: the log is filtered by any of its words and by outcome, and what the cluster
// does is counted.
func TestAuditEvents(t *testing.T) {
	events := []admin.AuditEvent{
		{ID: "4", Title: "refused_drain", Initiator: "alice",
			Fields: []admin.AuditField{{Key: "error", Value: "c has the only copy"}}},
		{ID: "3", Title: "ask_drain", Initiator: "alice", Fields: []admin.AuditField{{Key: "reason", Value: "the disk is slow"}}},
		{ID: "2", Title: "instance_state", Initiator: "cluster", Fields: []admin.AuditField{{Key: "instance", Value: "c"}}},
		{ID: "1", Title: "ask_kill_session", Initiator: "bob"},
	}
	for _, x := range []struct {
		words, outcome string
		people         bool
		want           string
		folded         int
	}{
		{"", "", false, "421", 0}, {"", "", true, "41", 1}, {"DISK", "", true, "4", 0},
		{"kill session", "", true, "1", 0},
		{"instance c", "", true, "", 1}, {"instance c", "", false, "2", 0}, {"nothing", "", false, "", 0},
		{"drain", "", true, "4", 0}, {"", "refused", true, "4", 0}, {"", "asked", true, "31", 0},
		{"bob", "asked", true, "1", 0},
		{"bob", "refused", true, "", 0}, {"", "done", false, "", 0},
	} {
		shown, folded := eventsOf(events, x.words, x.outcome, x.people)
		got := ""
		for _, e := range shown {
			got += e.ID
		}
		if got != x.want || folded != x.folded {
			t.Errorf("%+v: %s, %d folded", x, got, folded)
		}
	}
	undo := auditRow(&admin.AuditEvent{Title: "done_drain", Fields: []admin.AuditField{{Key: "asked_instance", Value: "c"},
		{Key: "asked_undo", Value: "true"}, {Key: "semaphore", Value: "$config/flags"}, {Key: "via", Value: "http"}}})
	if got := undo.Cells[0].Text + "; " + undo.Cells[3].Text + "; " + undo.Cells[2].Note; got !=
		"undrain; instance c, configuration flags; via http" {
		t.Errorf("a drain that is undone is shown as %q", got)
	}
	lists := auditRow(&admin.AuditEvent{Title: "ask_alter", Fields: []admin.AuditField{{Key: "drain", Value: `["h3","h4"]`}, {Key: "undrain", Value: "[]"}}})
	if text := lists.Cells[3].Text; text != "drain h3 h4" {
		t.Errorf("lists are shown as %q", text)
	}
	for title, want := range map[string][3]string{
		"ask_drain": {"drain", "asked", "quiet"}, "done_node delete": {"node delete", "done", ""},
		"refused_auth_grant": {"auth grant", "refused", "bad"}, "undecided_expel": {"expel", "undecided", "warn"},
		"rollout_gate_done": {"rollout gate done", "–", "quiet none"},
		"session_killed":    {"session killed", "–", "quiet none"},
	} {
		r := auditRow(&admin.AuditEvent{Title: title, Fields: []admin.AuditField{{Key: "error", Value: "why"}}})
		if got := [3]string{r.Cells[0].Text, r.Cells[5].Text, r.Cells[5].Kind}; got != want ||
			r.Cells[5].Note != "Why." {
			t.Errorf("%s is shown as %q with the note %q, want %q", title, got, r.Cells[5].Note, want)
		}
	}
}

// TestAuditOutcomes: a request and its outcome are one row, with the fields of both; requests of
// another person, instance, verb or object keep their own.
func TestAuditOutcomes(t *testing.T) {
	field := func(pairs ...string) (list []admin.AuditField) {
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, admin.AuditField{Key: pairs[i], Value: pairs[i+1]})
		}
		return list
	}
	events := []admin.AuditEvent{
		{ID: "9", Instance: "a", Title: "done_node_delete", Initiator: "alice", Fields: field("node", "/y", "sessions", "0")},
		{ID: "8", Instance: "a", Title: "done_node_delete", Initiator: "alice", Fields: field("node", "/x")},
		{ID: "7", Instance: "a", Title: "ask_node_delete", Initiator: "alice", Fields: field("node", "/z")},
		{ID: "6", Instance: "a", Title: "ask_node_delete", Initiator: "alice", Fields: field("node", "/y", "force", "true")},
		{ID: "5", Instance: "b", Title: "ask_node_delete", Initiator: "alice", Fields: field("node", "/x")},
		{ID: "4", Instance: "a", Title: "ask_node_delete", Initiator: "bob", Fields: field("node", "/x")},
		{ID: "3", Instance: "a", Title: "ask_node_delete", Initiator: "alice", Fields: field("node", "/x")},
		{ID: "2", Instance: "a", Title: "ask_node_delete", Initiator: "alice", Fields: field("node", "/x")},
		{ID: "1", Instance: "a", Title: "ask_kill_session", Initiator: "alice"},
	}
	got := ""
	for _, e := range withOutcomes(events) {
		got += e.ID
		if e.ID == "9" && len(e.Fields) != 3 {
			t.Errorf("the outcome lacks what was asked: %v", e.Fields)
		}
	}
	if got != "9875421" {
		t.Errorf("rows %s, want 9875421", got)
	}
	if len(events[0].Fields) != 2 {
		t.Error("the events that were given have changed")
	}
}
