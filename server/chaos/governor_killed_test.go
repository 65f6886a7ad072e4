package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestGovernorIsKilled kills the process whose governor acts at each step of a bucket move, of an
// expel, and of a node's drop, and restarts it. The next governor continues: each ends correctly,
// once, and clients notice nothing but a pause. Form full has a part of the steps, form long all.
func TestGovernorIsKilled(t *testing.T) {
	form.SkipUntil(t, form.Full, "the governor is killed many times")
	t.Parallel()
	moves := []string{"begin move", "freeze buckets", "copy buckets", "commit move", "activate moved buckets",
		"discard moved buckets", "end move"}
	expels := []string{"expel replicaset", "copy buckets", "finish replicaset expel"}
	drops := 3
	if !form.Is(form.Long) {
		moves, expels, drops = []string{"copy buckets"}, nil, 1
	}
	c := newCluster(t, "--replication-factor", "1", "--shards", "2")
	for _, name := range []string{"a", "b", "c"} {
		c.add(name)
	}
	for _, name := range c.names() {
		c.peers(name, c.names()...)
		c.instances[name].start()
	}
	c.awaitIdle("at first")
	c.makeNode()
	for k := range 2 {
		c.load("", loadSpec{Name: fmt.Sprintf("load-%d", k), Timeout: loadTimeout, Pause: 20 * time.Millisecond})
	}
	c.awaitProgress("at first", now(), c.loads...)

	weight, met := 0.2, 0
	for _, step := range moves {
		seen := false
		for try := 0; try < 5 && !seen; try++ {
			s := c.awaitIdle("before buckets move")
			if _, err := c.command("cluster", "weight", s.Replicasets[0].Name, fmt.Sprint(weight), "--timeout",
				waitLimit.String()); err != nil {
				t.Fatal(err)
			}
			weight = 1.2 - weight
			seen = c.killGovernorAt(step)
			c.awaitIdle("after buckets moved")
		}
		c.checkStep("move", step, seen)
		if seen {
			met++
		}
		c.awaitProgress("after a move", now(), c.loads...)
	}
	if len(moves) > 1 && met < len(moves)/2 {
		t.Errorf("only %d of %d steps of moves were met: the test has seen too little", met, len(moves))
	}

	for k := range drops {
		path := fmt.Sprintf("/dropped-%d", k)
		if _, err := c.command("node", "create", path, "--timeout", waitLimit.String()); err != nil {
			t.Fatal(err)
		}
		dropped := make(chan error, 1)
		go func() {
			_, err := c.command("node", "delete", path, "--timeout", waitLimit.String())
			dropped <- err
		}()
		c.checkStep("drop", "drop node", c.killGovernorAt("drop node"))
		if err := <-dropped; err != nil && !strings.Contains(err.Error(), "not found") { // asked twice, it may be done
			t.Errorf("drop of %s: %v", path, err)
		}
		c.awaitIdle("after a node was dropped")
		if _, err := c.command("node", "describe", path); err == nil || !strings.Contains(err.Error(), "not found") {
			t.Errorf("%s is still there: %v", path, err)
		}
	}

	next := 'd'
	for _, step := range expels {
		s := c.awaitIdle("before an expel")
		var gone string
		for _, i := range s.Instances {
			if i.Name != s.Meta.Leader && i.Current == "Online" {
				gone = i.Name
			}
		}
		expelled := make(chan error, 1)
		go func() {
			_, err := c.command("cluster", "expel", gone, "--force", "--reason", "test", "--timeout", waitLimit.String())
			expelled <- err
		}()
		c.checkStep("expel", step, c.killGovernorAt(step))
		if err := <-expelled; err != nil {
			t.Errorf("expel of %s: %v", gone, err)
		}
		<-c.instances[gone].ended
		delete(c.instances, gone)
		c.add(string(next))
		c.peers(string(next), c.names()...)
		c.instances[string(next)].start()
		next++
		c.awaitIdle("with another in its place")
		c.awaitProgress("after an expel", now(), c.loads...)
	}
	c.stopLoads(true)
}

// checkStep reports whether the governor's process was killed at a step. A step may be over between
// two polls.
func (c *cluster) checkStep(what, step string, seen bool) {
	if seen {
		c.t.Logf("%s: killed at %q", what, step)
	} else {
		c.t.Logf("%s: %q was over before it was seen", what, step)
	}
}

// killGovernorAt kills the process whose governor acts once its plan has a step of a kind, and
// restarts it. False: nothing was left to do before the step was seen.
func (c *cluster) killGovernorAt(kind string) bool {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	cl, err := client.Dial(ctx, c.endpoints()...)
	if err != nil {
		c.t.Fatal(err)
	}
	defer cl.CloseWithoutRelease()
	for began, quiet := now(), 0; quiet < 100; time.Sleep(2 * time.Millisecond) {
		p, err := admin.New(cl).Plan(ctx)
		if err != nil {
			c.t.Fatalf("%v: %v", now()-began, err)
		}
		if quiet++; len(p.Steps)+len(p.Waits) > 0 {
			quiet = 0
		}
		if !slices.ContainsFunc(p.Steps, func(s string) bool { return strings.HasPrefix(s, kind) }) {
			continue
		}
		if in := c.instances[p.Leader]; in != nil {
			in.kill()
			in.start()
			return true
		}
	}
	return false
}

// awaitIdle waits until all instances are Online with their current processes, each is a replicaset
// of its own with its share of the buckets, and nothing is left to do.
func (c *cluster) awaitIdle(when string) protocol.ClusterStatus {
	c.t.Helper()
	return c.await("a calm cluster "+when, func(s *protocol.ClusterStatus) string {
		var online []string
		for _, i := range s.Instances {
			if in := c.instances[i.Name]; in != nil && int(i.CurrentIncarnation) >= in.starts &&
				i.Current == "Online" && i.Target == "Online" && i.CurrentIncarnation == i.TargetIncarnation {
				online = append(online, i.Name)
			}
		}
		slices.Sort(online)
		if !slices.Equal(online, c.names()) {
			return fmt.Sprintf("%v are Online", online)
		}
		buckets := 0
		for _, r := range s.Replicasets {
			buckets += int(r.Buckets)
		}
		if buckets != 4096 || len(s.Moves) > 0 || s.Meta.Leader == "" {
			return fmt.Sprintf("%d buckets, %d moves, led by %q", buckets, len(s.Moves), s.Meta.Leader)
		}
		for _, x := range s.Shards {
			if !x.Ready || x.Master == "" || x.Master != x.TargetMaster {
				return fmt.Sprintf("shard %d is %+v", x.ID, x)
			}
		}
		if out, err := c.command("cluster", "plan", "--timeout", "5s"); err != nil || !strings.Contains(out, "nothing to do") {
			return fmt.Sprintf("the plan is %s, %v", out, err)
		}
		return ""
	})
}
