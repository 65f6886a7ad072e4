package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/binary"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
)

// cluster is server processes that belong together, and loads on them.
type cluster struct {
	t         *testing.T
	bin       string
	dir       string
	flags     []string // of every instance
	netns     string   // network namespace of the test's own clients
	copies    int      // of each shard
	instances map[string]*instance
	loads     []*actor
	specs     map[*actor]loadSpec
}

func newCluster(t *testing.T, flags ...string) *cluster {
	t.Helper()
	return newClusterOf(t, 3, flags...)
}

// newClusterOf is newCluster with this many copies of each shard.
func newClusterOf(t *testing.T, copies int, flags ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, bin: binary.Signalbox(t), dir: t.TempDir(), instances: map[string]*instance{},
		specs: map[*actor]loadSpec{}, copies: copies}
	token := filepath.Join(c.dir, "token")
	if err := os.WriteFile(token, []byte("a secret of this test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.flags = append([]string{"--join-token-file", token, "--replication-factor", strconv.Itoa(copies)}, flags...)
	t.Cleanup(func() {
		for _, a := range c.loads {
			_ = a.cmd.Process.Kill()
			<-a.ended
			_ = a.cmd.Wait()
		}
		for _, name := range c.names() {
			if in := c.instances[name]; in.cmd != nil {
				in.killAndShowLog(name)
			}
		}
	})
	return c
}

// add adds an instance, which does not run yet. Its peers are set before its first start.
func (c *cluster) add(name string) *instance {
	in := &instance{t: c.t, bin: c.bin, dir: filepath.Join(c.dir, name), listen: port.ForTest(c.t),
		raft: port.ForTest(c.t), admin: port.ForTest(c.t)}
	in.flags = append([]string{"--instance", name}, c.flags...)
	c.instances[name] = in
	return in
}

func (c *cluster) peers(name string, peers ...string) {
	var list []string
	for _, p := range peers {
		list = append(list, c.instances[p].raft)
	}
	c.instances[name].flags = append(c.instances[name].flags, "--peer", strings.Join(list, ","))
}

// startThree starts three instances that know each other, and waits until they work.
func (c *cluster) startThree() {
	c.t.Helper()
	names := []string{"a", "b", "c"}
	for _, name := range names {
		c.add(name)
	}
	c.startAll(names...)
}

// startAll starts instances that know each other, and waits until they work.
func (c *cluster) startAll(names ...string) {
	c.t.Helper()
	for _, name := range names {
		c.peers(name, names...)
		c.instances[name].start()
	}
	c.awaitReady("at first", names...)
}

func (c *cluster) names() (list []string) {
	for name := range c.instances {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

func (c *cluster) endpoints() (list []string) {
	for _, name := range c.names() {
		list = append(list, c.instances[name].listen)
	}
	return list
}

// command runs the binary as an operator does.
func (c *cluster) command(args ...string) (out string, err error) {
	cmd := inNetns(c.netns, c.bin, append(args, "--endpoints", strings.Join(c.endpoints(), ","))...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	b, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, stderr.String())
	}
	return string(b), err
}

func (c *cluster) status() (s protocol.ClusterStatus, err error) {
	out, err := c.command("cluster", "status", "-o", "json", "--timeout", "5s")
	var exit *exec.ExitError
	if err != nil && (out == "" || !errors.As(err, &exit) || exit.ExitCode() != 1) { // 1: the cluster is not healthy, as expected here
		return s, err
	}
	return s, json.Unmarshal([]byte(out), &s)
}

// await waits until the cluster's status is as wanted; wrong says what is not.
func (c *cluster) await(what string, wrong func(s *protocol.ClusterStatus) string) protocol.ClusterStatus {
	c.t.Helper()
	var last string
	var s protocol.ClusterStatus
	deadline := now() + waitLimit
	for {
		var err error
		if s, err = c.status(); err != nil {
			last = err.Error()
		} else if last = wrong(&s); last == "" {
			return s
		}
		if now() > deadline {
			plan, _ := c.command("cluster", "plan", "--timeout", "5s")
			text, _ := c.command("cluster", "status", "--timeout", "5s")
			c.t.Fatalf("waited %s for %s: %s\n%s\n%s\n%s", waitLimit, what, last, text, plan, c.saveDiagnostics())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// artifactsDir is where artifacts of a failed test go.
func artifactsDir() string {
	if *keepFlag != "" {
		return *keepFlag
	}
	return filepath.Join(keptDir, fmt.Sprintf("signalbox-chaos-%d", os.Getpid()))
}

// saveDiagnostics saves the metrics and goroutines of each instance, and says where.
func (c *cluster) saveDiagnostics() string {
	dir := artifactsDir()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err.Error()
	}
	self, err := os.Executable()
	if err != nil {
		return err.Error()
	}
	for _, name := range c.names() {
		for file, path := range map[string]string{"metrics": "metrics", "goroutines": "debug/pprof/goroutine?debug=2"} {
			cmd := inNetns(c.netns, self) // from where the instance is reached
			cmd.Env = append(os.Environ(), urlEnv+"=http://"+c.instances[name].admin+"/"+path)
			out, err := cmd.Output()
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name+"."+file), out, 0o644)
			}
			if err != nil {
				c.t.Logf("%s of %s: %v", file, name, err)
			}
		}
	}
	return "what the instances say of themselves is in " + dir
}

// awaitReady waits until these instances are Online with their current processes, each shard has
// its voters and a master among them, and nothing is in progress.
func (c *cluster) awaitReady(when string, names ...string) protocol.ClusterStatus {
	c.t.Helper()
	return c.await("a cluster that is ready "+when, func(s *protocol.ClusterStatus) string {
		var online []string
		for _, i := range s.Instances {
			if in := c.instances[i.Name]; in == nil || int(i.CurrentIncarnation) < in.starts {
				continue
			}
			if i.Current == i.Target && i.CurrentIncarnation == i.TargetIncarnation && i.Current == "Online" {
				online = append(online, i.Name)
			}
		}
		slices.Sort(online)
		switch {
		case !slices.Equal(online, names):
			return fmt.Sprintf("%v are Online", online)
		case len(s.Shards) == 0 || len(s.Tiers) == 0 || !s.Tiers[0].Bootstrapped || len(s.Moves) > 0:
			return "buckets are not assigned"
		case s.Meta.Leader == "" || len(s.Meta.Voters) != 3:
			return fmt.Sprintf("the meta shard is led by %q and has the voters %v", s.Meta.Leader, s.Meta.Voters)
		}
		for _, x := range s.Shards {
			voters := 0
			for _, r := range x.Replicas {
				if r.Role == "voter" && r.TargetRole == "voter" && slices.Contains(names, r.Instance) {
					voters++
				}
			}
			if !x.Ready || voters != c.copies || len(x.Replicas) != c.copies || x.Master != x.TargetMaster ||
				!slices.Contains(names, x.Master) {
				return fmt.Sprintf("shard %d is %+v", x.ID, x)
			}
		}
		return ""
	})
}

// makeNode makes the node that loads work in, with short periods.
func (c *cluster) makeNode() {
	c.t.Helper()
	if _, err := c.command("node", "create", nodePath, "--self-check-period", "500ms", "--grace-period", "2s",
		"--timeout", waitLimit.String()); err != nil {
		c.t.Fatal(err)
	}
}

// load starts a client process.
func (c *cluster) load(space string, spec loadSpec) *actor {
	c.t.Helper()
	spec.History = filepath.Join(c.dir, spec.Name+".history")
	if spec.Endpoints == nil {
		spec.Endpoints = c.endpoints()
	}
	text, err := json.Marshal(&spec)
	if err != nil {
		c.t.Fatal(err)
	}
	a := startActor(c.t, space, "load", spec.Name, loadEnv+"="+string(text))
	c.loads = append(c.loads, a)
	c.specs[a] = spec
	return a
}

func (c *cluster) history() (list []loadRecord) {
	for _, a := range c.loads {
		list = append(list, readLoadRecords(c.t, c.specs[a].History, a.name)...)
	}
	return list
}

// awaitProgress waits until each of these loads has used every lock and every counter since a
// moment. It fails the test at once if a load reports a failure.
func (c *cluster) awaitProgress(when string, since time.Duration, loads ...*actor) {
	c.t.Helper()
	await.True(c.t, "loads to carry on "+when, func() bool {
		for _, a := range loads {
			if r, ok := a.has("failed"); ok {
				c.t.Fatalf("%s %s: %s", a.name, when, r.Text)
			}
			seen := map[string]bool{}
			for _, r := range readLoadRecords(c.t, c.specs[a].History, a.name) {
				if r.From > since && r.What != recordCall {
					seen[r.Name] = true
				}
			}
			if len(seen) < loadLocks+loadCounters {
				return false
			}
		}
		return true
	})
}

// stopLoads ends the loads, and checks their records. exact: no outcome was left open.
func (c *cluster) stopLoads(exact bool) {
	c.t.Helper()
	for _, a := range c.loads {
		_ = a.cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, a := range c.loads {
		<-a.ended
		if err := a.cmd.Wait(); err != nil {
			r, _ := a.has("failed")
			c.t.Errorf("%s: %v: %s\n%s", a.name, err, r.Text, &a.errors)
		}
	}
	list := c.history()
	if err := checkLocks(list); err != nil {
		c.t.Errorf("locks: %v", err)
	}
	final := c.counters()
	if err := checkCounts(list, final, exact); err != nil {
		c.t.Errorf("counters: %v", err)
	}
	calls := 0
	for _, r := range list {
		if r.What == recordCall {
			calls++
		}
	}
	c.t.Logf("%d calls of %d loads; counters at %v", calls, len(c.loads), final)
}

// counters reads what the cluster has.
func (c *cluster) counters() map[string]uint64 {
	c.t.Helper()
	out := map[string]uint64{}
	for k := range loadCounters {
		text, err := c.command("config", "get", counterName(k), "--node", nodePath, "--timeout", waitLimit.String())
		if err != nil {
			c.t.Fatalf("%s: %v", counterName(k), err)
		}
		var n uint64
		if _, err := fmt.Sscan(text, &n); err != nil {
			c.t.Fatalf("%s reads %q: %v", counterName(k), text, err)
		}
		out[counterName(k)] = n
	}
	return out
}

// logLongestCall logs the longest pause that a caller saw since a moment.
func (c *cluster) logLongestCall(what string, since time.Duration) {
	c.t.Helper()
	longest, call := longestCall(c.history(), since, now())
	c.t.Logf("%s: the longest call took %v (%s)", what, longest.Round(time.Millisecond), call)
}

// busiest is the instance that leads most shards.
func busiest(s *protocol.ClusterStatus) string {
	leads := map[string]int{}
	for _, x := range s.Shards {
		leads[x.Master]++
	}
	best := ""
	for _, i := range s.Instances {
		if leads[i.Name] > leads[best] {
			best = i.Name
		}
	}
	return best
}
