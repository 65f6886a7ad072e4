package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestClusterExpel: under load an instance is drained and expelled; its process ends and does not start again; a new one takes its place. What would be too much is
// refused, and says why.
func TestClusterExpel(t *testing.T) {
	c := newCluster(t)
	c.three()
	c.makeNode()
	for k := range 2 {
		c.load("", loadSpec{Name: fmt.Sprintf("load-%d", k), Timeout: loadTimeout})
	}
	c.carriedOn("at first", now(), c.loads...)
	s := c.settled("before anything", c.names()...)
	gone := busiest(&s)
	left := slices.DeleteFunc(c.names(), func(name string) bool { return name == gone })

	refused := func(want string, args ...string) {
		t.Helper()
		if _, err := c.command(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want a refusal that says %q", args, err, want)
		}
	}
	allowed := func(args ...string) {
		t.Helper()
		if _, err := c.command(append(args, "--timeout", patience.String())...); err != nil {
			t.Fatal(err)
		}
	}
	refused("--force", "cluster", "expel", gone)
	since := now()
	allowed("cluster", "drain", gone)
	s, err := c.status()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range s.Instances {
		if i.Name == gone && len(i.Leads) > 0 {
			t.Errorf("drained %s leads %v", gone, i.Leads)
		}
	}
	c.measured("drain", since)
	since = now()
	allowed("cluster", "expel", gone, "--force")
	c.measured("expel", since)
	in := c.all[gone]
	await(t, "the expelled process to end", func() bool {
		select {
		case <-in.ended:
			return true
		default:
			return false
		}
	})
	in.start()
	<-in.ended
	if in.err == nil || !strings.Contains(in.log()[max(0, len(in.log())-2000):], "expelled") {
		t.Errorf("an expelled instance was started again: %v", in.err)
	}
	c.carriedOn("without the expelled one", now(), c.loads...)

	outdated := c.all[gone]
	delete(c.all, gone)
	c.add("d")
	c.peers("d", left...)
	c.all["d"].start()
	names := append(left, "d")
	s = c.settled("with another in its place", names...)
	if i := slices.IndexFunc(s.Instances, func(i protocol.ClusterInstance) bool { return i.Name == gone }); i >= 0 && s.Instances[i].Current != "Expelled" {
		t.Errorf("%s is %+v", gone, s.Instances[i])
	}
	c.carriedOn("with another in its place", now(), c.loads...)
	c.stopLoads(true)

	before := c.counters()
	allowed("cluster", "expel", left[0], "--force")
	allowed("cluster", "expel", left[1], "--force")
	for _, name := range left {
		delete(c.all, name)
	}
	for name, n := range c.counters() {
		if before[name] != n {
			t.Errorf("%s reads %d on the last instance, it was %d", name, n, before[name])
		}
	}
	refused("only", "cluster", "expel", "d", "--force")

	// The expelled instance's folder, should it not know that it was expelled, has logs that are not read when what is left of the cluster is recovered.
	c.all["d"].kill()
	path := filepath.Join(outdated.dir, "identity.json")
	identity, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(identity), `"expelled":true`, `"expelled":false`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := exec.Command(c.bin, "cluster", "recover", filepath.Join(t.TempDir(), "file"), "--survivor", outdated.dir, "--survivor", c.all["d"].dir, "--dry-run", "-o", "jsonl").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, outdated.dir) && !strings.Contains(line, `"shard":"meta"`) {
			found++
			if !strings.Contains(line, `"newest":false,"outdated":true`) {
				t.Errorf("%s of an expelled instance", line)
			}
		} else if !strings.Contains(line, `"outdated":false`) {
			t.Errorf("%s of the last one", line)
		}
	}
	if found == 0 {
		t.Errorf("the expelled instance has no logs: %s", text)
	}
}
