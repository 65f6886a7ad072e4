package admin_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestAuditLogOfACluster: what one instance was asked for, and what all of them saw, is one list;
// instances without a log, and such that do not answer, are named.
func TestAuditLogOfACluster(t *testing.T) {
	t.Parallel()
	form.SkipUntil(t, form.Full, "it starts a cluster")
	dir := t.TempDir()
	cluster := servertest.StartCluster(t, 3, servertest.Shards(1), servertest.Config(func(c *server.Config) {
		if c.Name != "i2" {
			c.Audit = filepath.Join(dir, c.Name)
		}
	}))
	c, err := client.Dial(t.Context(), cluster.Addrs()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	a := admin.New(c)
	victim := session(t, c, "/default")
	if err := admin.OfNode(victim.Node()).KillSession(t.Context(), victim.ID(), "host is broken"); err != nil {
		t.Fatal(err)
	}
	// An instance has a second to answer, which a busy one may need twice.
	var log *admin.AuditLog
	await.True(t, "two logs, and one instance that has none", func() bool {
		if log, err = a.AuditLog(t.Context(), admin.MaxAuditLines); err != nil {
			return false
		}
		without := 0
		for _, x := range log.Instances {
			switch {
			case errors.Is(x.Err, client.ErrNotFound):
				without++
			case x.Err != nil:
				return false
			}
		}
		return len(log.Instances) == 3 && without == 1
	})
	joined := map[string]int{}
	for i, e := range log.Events {
		if i > 0 && e.Time.After(log.Events[i-1].Time) || e.Time.IsZero() || e.ID == "" || e.Instance == "" ||
			e.Severity == "" || e.Initiator == "" {
			t.Errorf("event %d is %+v", i, e)
		}
		if e.Title == "join_instance" {
			for _, f := range e.Fields {
				if f.Key == "instance_name" {
					joined[f.Value]++
				}
			}
		}
	}
	for name, n := range joined {
		if n != 1 {
			t.Errorf("%s joined %d times", name, n)
		}
	}
	if len(joined) != 3 {
		t.Errorf("%d instances joined: %v", len(joined), joined)
	}
	if few, err := a.AuditLog(t.Context(), 2); err != nil || len(few.Events) != 2 {
		t.Errorf("the last two are %+v, %v", few, err)
	}
	for _, lines := range []int{-1, admin.MaxAuditLines + 1} {
		if _, err := a.AuditLog(t.Context(), lines); !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("%d lines: %v", lines, err)
		}
	}
	cluster.Kill(2)
	await.True(t, "i2 alone to be without an answer", func() bool {
		log, err = a.AuditLog(t.Context(), 10)
		if err != nil || len(log.Events) == 0 {
			return false
		}
		for _, x := range log.Instances {
			if down := x.Name == "i2"; down != (x.Err != nil) {
				return false
			}
		}
		return true
	})
}
