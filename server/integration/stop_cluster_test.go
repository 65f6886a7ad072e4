package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// voting reports whether the meta shard has so many voters.
func voting(n int) func(s *meta.State) bool {
	return func(s *meta.State) bool {
		voters := 0
		for _, r := range s.MetaShard().Replicas {
			if r.Role == meta.RoleVoter && r.TargetRole == meta.RoleVoter {
				voters++
			}
		}
		return voters == n
	}
}

// TestReadySaysWhy: an instance of a replicaset that is not full, before buckets are assigned, says
// what it waits for.
func TestReadySaysWhy(t *testing.T) {
	t.Parallel()
	k := newClusterKit(t, 2)
	if err := k.start("a"); err != nil {
		t.Fatal(err)
	}
	a := k.run["a"]
	if err := a.Ready(); err == nil || !strings.Contains(err.Error(), "waits for more members: it has 1 of 2") {
		t.Errorf("one of two: %v", err)
	}
	if err := a.Live(); err != nil {
		t.Error(err)
	}
	if err := k.start("b", "a"); err != nil {
		t.Fatal(err)
	}
	k.await("two instances that work", stable(2, 2))
	for name, s := range k.run {
		await.True(t, name+" to be ready", func() bool { return s.Ready() == nil })
		var text strings.Builder
		s.Metrics.WritePrometheus(&text)
		for _, want := range []string{
			`signalbox_instance_state{state="Online"} 1`, "signalbox_meta_leader ", "signalbox_governor_steps_total ",
			`signalbox_peer_connections{way="out"} `,
			"signalbox_moves 0", `signalbox_failure_detector_actions_total{action="mark",outcome="accepted"} 0`,
		} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("metrics of %s lack %s", name, want)
			}
		}
	}
}

// auditLines reads an audit log.
func auditLines(t *testing.T, path string) (list []map[string]any) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		line := map[string]any{}
		if err := json.Unmarshal(in.Bytes(), &line); err != nil {
			t.Fatalf("%s: %v", in.Text(), err)
		}
		list = append(list, line)
	}
	return list
}

// TestAuditOfAnInstance: what happens to the cluster is in the log once, over restarts and a file
// that is moved away.
func TestAuditOfAnInstance(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	cfg := server.Config{
		DataDir: filepath.Join(dir, "data"), Listen: "127.0.0.1:0", Raft: port.ForTest(t), Admin: server.Off, Name: "one",
		Shards: 1, Buckets: 16, RTT: 5 * time.Millisecond,
		Logger: clusterLog(), Audit: path,
	}
	ctx := context.Background()
	for range 2 {
		s, err := startServer(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := shutdown(s); err != nil {
			t.Fatal(err)
		}
	}
	var titles []string
	ids := map[any]bool{}
	for _, l := range auditLines(t, path) {
		title := fmt.Sprint(l["title"])
		if state, ok := l["new_state"]; ok {
			title += " " + fmt.Sprint(state)
		}
		titles = append(titles, title)
		if ids[l["id"]] {
			t.Errorf("id %v is there twice", l["id"])
		}
		ids[l["id"]] = true
	}
	want := []string{
		"init_audit", "local_startup", "join_instance", "create_local_db", "change_target_state Online(1)",
		"change_current_state Online(1)", "local_shutdown",
		"init_audit", "local_startup", "connect_local_db", "recover_local_db", "change_target_state Online(2)",
		"change_current_state Online(2)", "local_shutdown",
	}
	if got := strings.Join(titles, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("the log is\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	s, err := startServer(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := s.ReopenAudit(); err != nil {
		t.Fatal(err)
	}
	if err := shutdown(s); err != nil {
		t.Fatal(err)
	}
	if l := auditLines(t, path); len(l) == 0 || l[len(l)-1]["title"] != audit.LocalShutdown.Title || l[len(l)-1]["severity"] != "high" {
		t.Errorf("after the file was moved away the new one has %v", l)
	}
	cfg.Audit = filepath.Join(dir, "missing", "audit.log")
	if _, err := startServer(ctx, cfg); err == nil || !strings.Contains(err.Error(), "audit log") {
		t.Errorf("a file that cannot be made: %v", err)
	}
}

// TestAuditOfACluster: each instance that logs tells of the same events, with the same indexes.
func TestAuditOfACluster(t *testing.T) {
	form.SkipUntil(t, form.Full, "three instances; TestAuditOfAnInstance has one")
	t.Parallel()
	dir := t.TempDir()
	k := newClusterKit(t, 3)
	k.change = func(name string, c *server.Config) { c.Audit = filepath.Join(dir, name) }
	k.startAll("a", "b", "c")
	k.await("three instances that work", stable(3, 3))
	state := k.run["a"].Meta.State()
	for name, s := range k.run {
		await.True(t, name+" to have applied it", func() bool { return s.Meta.State().Revision() >= state.Revision() })
		if err := s.ReopenAudit(); err != nil { // what waits is written
			t.Fatal(err)
		}
	}
	type event struct{ title, instance, state, index any }
	all := map[string]map[event]bool{}
	for name := range k.run {
		all[name] = map[event]bool{}
		for _, l := range auditLines(t, filepath.Join(dir, name)) {
			if l["index"] == nil || l["index"].(float64) > float64(state.AppliedIndex()) {
				continue
			}
			e := event{l["title"], l["instance_name"], l["new_state"], l["index"]}
			if all[name][e] {
				t.Errorf("%s has %v twice", name, e)
			}
			all[name][e] = true
		}
	}
	for name, events := range all {
		if len(events) < 3*4 {
			t.Errorf("%s has %d events", name, len(events))
		}
		for e := range events {
			for other := range all {
				if !all[other][e] {
					t.Errorf("%s lacks %v, which %s has", other, e, name)
				}
			}
		}
	}
}
