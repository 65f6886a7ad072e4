package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// threeHosts is a ready cluster with an instance on each of the first three hosts; the operator is
// on the router.
func threeHosts(t *testing.T, hosts int) (*network, *cluster, []string) {
	n := newNetwork(t, hosts)
	c := newCluster(t)
	c.netns = n.router
	names := []string{"a", "b", "c"}
	for k, name := range names {
		in := c.add(name)
		in.netns, in.listen, in.raft, in.admin = n.hosts[k], n.address(k)+":7070", n.address(k)+":7071", n.address(k)+":7072"
	}
	c.startAll(names...)
	c.makeNode()
	return n, c, names
}

// TestClusterPartition cuts off a host whose instance leads shards, with clients of its own. These
// stop relying on what they hold before others get it. After the cut is healed there is one
// history.
func TestClusterPartition(t *testing.T) {
	t.Parallel()
	n, c, names := threeHosts(t, 3)
	const crowns = 6
	var grab []string
	for k := range crowns {
		grab = append(grab, fmt.Sprintf("crown-%d", k))
	}
	s := c.awaitReady("before the cut", names...)
	lone := 0
	for k, name := range names {
		if name == busiest(&s) {
			lone = k
		}
	}
	// It loses nothing before the cut, however busy the machine is.
	cutOff := c.load(n.hosts[lone], loadSpec{Name: "cut-off", Timeout: loadTimeout, Grab: grab, MayLose: true})
	cutOff.until(t, "the crowns to be held", func() bool { return cutOff.count("grabbed") == crowns })
	var others []*actor
	for k := range names {
		if k != lone {
			// They live through the cut, however busy the machine is.
			others = append(others, c.load(n.hosts[k], loadSpec{Name: fmt.Sprintf("other-%d", k), Timeout: loadTimeout, Grab: grab}))
		}
	}
	c.awaitProgress("at first", now(), c.loads...)
	if others[0].count("grabbed")+others[1].count("grabbed") > 0 && cutOff.count("grabbed") == crowns {
		t.Fatal("a crown has two holders") // except those that were lost on the way
	}

	since := now()
	for k := range names {
		if k != lone {
			n.part(lone, k)
		}
	}
	await.True(t, "the others to get the crowns", func() bool { return others[0].count("grabbed")+others[1].count("grabbed") >= crowns })
	t.Logf("the others had all locks %v after the cut", (now() - since).Round(time.Millisecond))
	c.awaitProgress("without those that are cut off", now(), others...)
	n.healAll()
	healed := now()
	c.awaitReady("after the cut was healed", names...)
	c.awaitProgress("after the cut was healed", now(), c.loads...)
	t.Logf("all is well %v after the cut was healed", (now() - healed).Round(time.Millisecond))
	c.stopLoads(false)
}

// TestClusterOneWayCuts cuts one direction between two instances. Clients that reach all instances
// carry on.
func TestClusterOneWayCuts(t *testing.T) {
	form.SkipUntil(t, form.Full, "TestClusterPartition cuts both ways")
	t.Parallel()
	n, c, names := threeHosts(t, 3)
	s := c.awaitReady("before the cuts", names...)
	leader := 0
	for k, name := range names {
		if name == s.Meta.Leader {
			leader = k
		}
	}
	other, third := (leader+1)%3, (leader+2)%3
	c.load(n.hosts[third], loadSpec{Name: "third", Timeout: time.Minute})
	c.awaitProgress("at first", now(), c.loads...)
	for _, way := range [][2]int{{leader, other}, {other, leader}} {
		since := now()
		n.cut(way[0], way[1])
		// Long enough to be noticed.
		for until := since + 2*time.Second; now() < until; {
			c.awaitProgress("during a one-way cut", now(), c.loads...)
		}
		c.logLongestCall(fmt.Sprintf("nothing from %s to %s", names[way[0]], names[way[1]]), since)
		n.heal(way[0], way[1])
	}
	c.awaitReady("after the cuts", names...)
	c.awaitProgress("after the cuts", now(), c.loads...)
	c.stopLoads(true)
}
