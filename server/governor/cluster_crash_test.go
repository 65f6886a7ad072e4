package governor

import (
	"context"
	"testing"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestACrashAtEachStep has a cluster grow to two replicasets, lose an instance, get it back and expel a replicaset. For each step that is taken on the way
// there is a run in which the governor ends with that step: it was carried out, or it was lost, and another governor goes on. Each ends right.
func TestACrashAtEachStep(t *testing.T) {
	total, want := crashAt(t, -1, carried)
	if total < 80 {
		t.Fatalf("%d steps only", total)
	}
	for k := range total {
		for _, f := range []fate{lost, mute} {
			if _, got := crashAt(t, k, f); got != want {
				t.Fatalf("crash at step %d, fate %d:\n%s\nwithout a crash:\n%s", k, f, got, want)
			}
		}
	}
}

// crashAt says how many steps were taken, and what came of them.
func crashAt(t *testing.T, k int, f fate) (steps int, status string) {
	c := newCluster(16, 2, 2)
	c.broken = func(text string) { t.Fatalf("crash at step %d: %s", k, text) }
	g, p := c.governor(), NewProgress()
	settle := func() {
		for quiet := 0; quiet < 24; quiet++ {
			c.beat()
			c.sentinel()
			c.write(uint32(steps % 16))
			for _, s := range Plan(c.view(p)) {
				quiet = 0
				crash := steps == k
				steps++
				if crash && f == lost {
					p = NewProgress()
					break
				}
				answer, err := g.carryOut(context.Background(), &s)
				if crash {
					p = NewProgress()
					break
				}
				if err == nil {
					p.Done(&s, c.now, c.now, answer)
				}
				if steps > 2000 {
					t.Fatalf("crash at step %d: it does not settle: %v", k, Explain(c.view(p)))
				}
			}
		}
		if why := c.unsettled(); why != "" {
			t.Fatalf("crash at step %d: %s", k, why)
		}
	}
	for _, name := range []string{"b", "c", "d"} {
		c.join(name, "", "", "")
	}
	settle()
	c.kill(1)
	away(c)
	c.start(1)
	settle()
	for id := uint64(3); id <= 4; id++ {
		c.apply(&meta.InstanceUpdate{Instance: id, Target: meta.Expelled, Force: true})
	}
	settle()
	s := clusterScript{cluster: c}
	return steps, s.instances()
}

// away is time in which it is found who is dead.
func away(c *cluster) {
	for range 14 {
		c.beat()
		c.sentinel()
	}
}
