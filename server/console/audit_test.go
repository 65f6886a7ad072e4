package console

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

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
	if page := s.get("/sessions"); page.status != 200 || strings.Contains(page.body, `href="/audit"`) {
		t.Errorf("answered %d, and the audit log is offered without the right", page.status)
	}
	s.get("/audit").wants(t, 200, "needs the right admin on the path /")

	s.login(adminToken).wants(t, 303)
	s.get("/").wants(t, 200, `href="/audit"`)
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
