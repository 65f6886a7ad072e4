package chaos

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestClusterForms: three processes started in any order, each with a part of the peers, become one
// cluster. They are the same one after all were killed.
func TestClusterForms(t *testing.T) {
	form.SkipUntil(t, form.Full, "integration.TestPeerLists has the orders")
	t.Parallel()
	c := newCluster(t)
	names := []string{"a", "b", "c"}
	for _, name := range names {
		c.add(name)
	}
	c.peers("a", "a", "b")
	c.peers("b", "c", "b")
	c.peers("c", "b", "a")
	rng := rand.New(rand.NewPCG(3, 4))
	inAnyOrder := func() {
		for _, k := range rng.Perm(3) {
			c.instances[names[k]].start()
		}
	}
	inAnyOrder()
	before := c.awaitReady("at first", names...)
	if before.Tiers[0].ReplicationFactor != 3 || len(before.Replicasets) != 1 {
		t.Errorf("replication factor %d, %d replicasets", before.Tiers[0].ReplicationFactor, len(before.Replicasets))
	}
	const values = 12 // more than there are shards
	for k := range values {
		if _, err := c.command("config", "set", fmt.Sprintf("value-%d", k), fmt.Sprint(k*k)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		c.instances[name].kill()
	}
	began := now()
	inAnyOrder()
	for k := range values {
		out, err := c.command("config", "get", fmt.Sprintf("value-%d", k), "--timeout", waitLimit.String())
		if err != nil || out != fmt.Sprint(k*k) {
			t.Errorf("value-%d reads %q after all were killed, %v", k, out, err)
		}
	}
	t.Logf("all values were read %v after the restart of all", now()-began)
	after := c.awaitReady("after all were killed", names...)
	if after.ID != before.ID || len(after.Instances) != 3 || len(after.Shards) != len(before.Shards) {
		t.Errorf("cluster %s with %d instances and %d shards was %s with %d and %d", after.ID, len(after.Instances),
			len(after.Shards), before.ID, len(before.Instances),
			len(before.Shards))
	}
	for _, name := range names {
		c.instances[name].stop()
	}
}
