package replica

import (
	"testing"
	"time"
)

// TestSuccession: the process of a leader has ended, and another replica leads before the engine
// would look for one: that takes ten round trips at least, here ten minutes.
func TestSuccession(t *testing.T) {
	c := newClusterOfRTT(t, 3, 3, time.Minute, func(cfg *ShardConfig) { cfg.ProposeTimeout = time.Hour })
	poll := func(what string, ok func() bool) {
		t.Helper()
		if !await(timeout(t), nil, patience, ok) {
			t.Fatalf("waited too long for %s", what)
		}
	}
	poll("the first election", func() bool {
		c.hosts[1].campaigner.add(campaign{campaignKey: campaignKey{shard: 1, from: 1, to: 2}, next: time.Now()})
		return c.shards[1].Leading()
	})
	c.populate()
	c.make("before")
	gone := c.hosts[1].RaftAddress()
	rest := []int{0, 2}
	for _, i := range rest {
		poll("word of the leader",
			func() bool { leader, _ := c.hosts[i].groups.leaderOf(1, c.ids[i]); return leader == 2 })
	}
	if n := c.hosts[1].Succeed(gone, []string{c.hosts[0].RaftAddress(), c.hosts[2].RaftAddress()}); n != 0 {
		t.Errorf("the leader stands in %d groups for its own succession", n)
	}
	c.stop(1)
	for _, i := range rest {
		if n := c.hosts[i].Succeed(gone, nil); n != 0 {
			t.Errorf("host %d stands in %d groups by its own word", i, n)
		}
		if n := c.hosts[i].Succeed(gone, []string{"elsewhere:1"}); n != 0 {
			t.Errorf("host %d stands in %d groups by the word of a replica that does not vote", i, n)
		}
		if n := c.hosts[i].Succeed(c.hosts[2-i].RaftAddress(), []string{gone}); n != 0 {
			t.Errorf("host %d stands in %d groups whose leader was elsewhere", i, n)
		}
	}
	for _, i := range rest {
		if n := c.hosts[i].Succeed(gone, []string{c.hosts[2-i].RaftAddress()}); n != 1 {
			t.Errorf("host %d stands in %d groups", i, n)
		}
	}
	c.leader()
	c.make("after")
}
