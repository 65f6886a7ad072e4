package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// leadsMost is the instance that leads the most shards.
func (k *clusterKit) leadsMost() string {
	best, most := "", -1
	for name, s := range k.run {
		if n := len(s.Hosting.Shards.Led()); n > most {
			best, most = name, n
		}
	}
	return best
}

// TestShutdownUnderLoad: callers of the SDK see no error while an instance that leads shards stops
// gracefully, and the cluster has it Offline before it is gone.
func TestShutdownUnderLoad(t *testing.T) {
	k := newClusterKit(t, 3)
	k.startAll("a", "b", "c")
	k.await("three instances that work", stable(3, 3))
	k.await("a vote of each in the meta shard", voting(3))
	var addresses []string
	for _, s := range k.run {
		addresses = append(addresses, s.Addr())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := client.Open(ctx, client.Config{Endpoints: addresses, Logger: clusterLog().With("instance", "client")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Session(ctx, "/default", client.Timeout(2*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	var (
		mu     sync.Mutex
		pause  time.Duration
		calls  int
		tokens = map[string]uint64{}
		wg     sync.WaitGroup
		stop   = make(chan struct{})
		errs   = make(chan error, 64)
	)
	for n := range 8 {
		wg.Go(func() {
			name := fmt.Sprintf("job-%d", n)
			for {
				select {
				case <-stop:
					return
				default:
				}
				began := time.Now()
				lease, err := s.Acquire(ctx, name, client.Exclusive())
				if err == nil {
					err = lease.Release(ctx)
				}
				took := time.Since(began)
				mu.Lock()
				calls++
				pause = max(pause, took)
				if took > 100*time.Millisecond {
					t.Logf("%s took %v, until %s", name, took, time.Now().Format("05.000"))
				}
				if err != nil {
					errs <- fmt.Errorf("%s after %v: %w", name, took, err)
				} else if lease.Token() <= tokens[name] {
					errs <- fmt.Errorf("%s: order id %d after %d", name, lease.Token(), tokens[name])
				} else {
					tokens[name] = lease.Token()
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	leaving := k.leadsMost()
	x := k.run[leaving]
	led := len(x.Hosting.Shards.Led())
	mu.Lock()
	before := calls
	mu.Unlock()
	if err := shutdown(x); err != nil {
		t.Error(err)
	}
	if err := x.Ready(); err == nil {
		t.Error("an instance that has stopped says that it is ready")
	}
	delete(k.run, leaving)
	k.await("the instance Offline, its shards led by others", func(state *meta.State) bool {
		i, _ := state.Instance(x.Instance())
		for _, y := range state.Shards() {
			if y.Master == x.Instance() {
				return false
			}
		}
		return i.Current.Variant == meta.Offline && i.Reason == meta.ReasonShutdown
	})
	mu.Lock()
	enough := calls + 200
	mu.Unlock()
	await.True(t, "calls after the stop", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return calls > enough || len(errs) > 0
	})
	close(stop)
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	t.Logf("stop of %s, which led %d shards: %d calls, the longest acquire and release took %v", leaving, led, calls-before, pause)
}

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

// TestShutdownWithoutOthers: with nobody to drain to, a stop does not wait.
func TestShutdownWithoutOthers(t *testing.T) {
	k := newClusterKit(t, 3)
	k.startAll("a", "b", "c")
	k.await("three instances that work", stable(3, 3))
	k.await("a vote of each in the meta shard", voting(3))
	a, b, c := k.run["a"], k.run["b"], k.run["c"]
	var all sync.WaitGroup
	for _, s := range []*instance{a, b} {
		all.Go(func() { _ = s.Close() })
	}
	all.Wait()
	await.True(t, "the silence of the others", func() bool { return c.Membership.NoSuccessor(c.Meta.State(), time.Hour) != "" })
	done := make(chan error, 1)
	go func() { done <- shutdown(c) }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the stop does not end")
	}
	if i, _ := c.Meta.State().Instance(c.Instance()); i.Target.Variant != meta.Online {
		t.Errorf("without a quorum its target is %v", i.Target)
	}
}

// TestReadySaysWhy: an instance of a replicaset that is not full, before buckets are assigned, says
// what it waits for.
func TestReadySaysWhy(t *testing.T) {
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

// TestNeededAmongUpWhoWasNeverHeard: an instance that was not heard since this one's start does not
// count as up, whatever the map says of it.
func TestNeededAmongUpWhoWasNeverHeard(t *testing.T) {
	t.Parallel()
	k := newClusterKit(t, 3)
	k.change = func(_ string, c *server.Config) { c.OfflineAfter = 5 * time.Minute }
	k.startAll("a", "b", "c")
	k.awaitOn("a", "three instances with three votes", balanced(3, 3, 3))
	k.eventually("none of them to be needed", func() bool { return k.server("a").Membership.NeededAmongUp() == "" })
	k.kill("a", "b", "c")
	k.mustAll([]string{"a", "b"})
	if c := instanceNamed(k.server("a").Meta.State(), "c"); c.Current.Variant != meta.Online {
		t.Fatalf("c is %v in the map, and the test sees nothing", c.Current)
	}
	if k.server("a").Membership.NeededAmongUp() == "" {
		t.Error("with one of three instances down, a second one is not needed")
	}
}
