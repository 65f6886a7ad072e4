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
				if r.Cells[0].Text == "ask kill session" && r.Cells[2].Note == "by a console" &&
					strings.Contains(r.Cells[3].Text, "session "+id) {
					return r.Cells[4].Text == "host is broken"
				}
			}
		}
		return false
	})
	s.get("/audit").wants(t, 200, "ask kill session", "host is broken", "by a console")
}

// TestNoAuditLog: the page says that nothing is kept, and how to keep it.
func TestNoAuditLog(t *testing.T) {
	s := openSite(t, nil)
	s.get("/audit").wants(t, 200, "No instance writes an audit log. Start them with --audit")
	s = openSite(t, nil, servertest.Config(func(c *server.Config) { c.Audit = "stderr" }))
	s.get("/audit").wants(t, 200, "to standard error")
}

// TestAuditEvents: the log is filtered by any of its words, and what the cluster does is counted.
func TestAuditEvents(t *testing.T) {
	events := []admin.AuditEvent{
		{ID: "3", Title: "ask_drain", Initiator: "alice", Fields: []admin.AuditField{{Key: "reason", Value: "the disk is slow"}}},
		{ID: "2", Title: "instance_state", Initiator: "cluster", Fields: []admin.AuditField{{Key: "instance", Value: "c"}}},
		{ID: "1", Title: "ask_kill_session", Initiator: "bob"},
	}
	for _, x := range []struct {
		words  string
		people bool
		want   string
		folded int
	}{
		{"", false, "321", 0}, {"", true, "31", 1}, {"DISK", true, "3", 0}, {"kill session", true, "1", 0},
		{"instance c", true, "", 1}, {"instance c", false, "2", 0}, {"nothing", false, "", 0},
	} {
		shown, folded := eventsOf(events, x.words, x.people)
		got := ""
		for _, e := range shown {
			got += e.ID
		}
		if got != x.want || folded != x.folded {
			t.Errorf("%+v: %s, %d folded", x, got, folded)
		}
	}
	if r := auditRow(&admin.AuditEvent{Fields: []admin.AuditField{{Key: "error", Value: "forbidden"}}}); r.Cells[5].Text != "forbidden" || r.Cells[5].Kind != "bad" {
		t.Errorf("the outcome is %+v", r.Cells[5])
	}
}
