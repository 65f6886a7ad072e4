package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestClusterExpel drains and expels an instance under load. Its process ends and does not start
// again; a new one takes its place. Changes that would leave too few instances are refused with the
// reason.
func TestClusterExpel(t *testing.T) {
	form.SkipUntil(t, form.Full, "integration.TestExpel and others have the rules")
	t.Parallel()
	c := newCluster(t)
	c.startThree()
	c.makeNode()
	for k := range 2 {
		c.load("", loadSpec{Name: fmt.Sprintf("load-%d", k), Timeout: loadTimeout})
	}
	c.awaitProgress("at first", now(), c.loads...)
	s := c.awaitReady("before anything", c.names()...)
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
		if _, err := c.command(append(args, "--timeout", waitLimit.String())...); err != nil {
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
	c.logLongestCall("drain", since)
	since = now()
	allowed("cluster", "expel", gone, "--force", "--reason", "test")
	c.logLongestCall("expel", since)
	in := c.instances[gone]
	in.awaitEnd("the expelled process to end")
	in.start()
	<-in.ended
	if in.err == nil || !strings.Contains(in.log()[max(0, len(in.log())-2000):], "expelled") {
		t.Errorf("an expelled instance was started again: %v", in.err)
	}
	c.awaitProgress("without the expelled one", now(), c.loads...)

	delete(c.instances, gone)
	c.add("d")
	c.peers("d", left...)
	c.instances["d"].start()
	names := append(left, "d")
	s = c.awaitReady("with another in its place", names...)
	if i := slices.IndexFunc(s.Instances, func(i protocol.ClusterInstance) bool { return i.Name == gone }); i >= 0 &&
		s.Instances[i].Current != "Expelled" {
		t.Errorf("%s is %+v", gone, s.Instances[i])
	}
	c.awaitProgress("with another in its place", now(), c.loads...)
	c.stopLoads(true)

	before := c.counters()
	allowed("cluster", "expel", left[0], "--force", "--reason", "test")
	allowed("cluster", "expel", left[1], "--force", "--reason", "test")
	for _, name := range left {
		delete(c.instances, name)
	}
	for name, n := range c.counters() {
		if before[name] != n {
			t.Errorf("%s reads %d on the last instance, it was %d", name, n, before[name])
		}
	}
	refused("only", "cluster", "expel", "d", "--force", "--reason", "test")
}
