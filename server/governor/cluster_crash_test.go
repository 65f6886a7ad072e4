package governor

import (
	"context"
	"testing"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestACrashAtEachStep has a cluster grow to two replicasets, lose an instance, get it back and expel a replicaset. For each step that is taken on the way
// there is a run in which the governor ends with that step: it was carried out, or it was lost, and another governor goes on. Each ends right.
func TestACrashAtEachStep(t *testing.T) {
	crashAtEach(t, 2, 80, func(c *cluster, settle func()) {
		for _, name := range []string{"b", "c", "d"} {
			c.join(name, "", "", "")
		}
		settle()
		c.kill(1)
		away(c)
		c.start(1)
		settle()
		for id := uint64(3); id <= 4; id++ {
			c.expel(id)
		}
		settle()
	})
}

// TestACrashWhileASpareMoves does the same while free instances take the places of dead ones: the first leaves a replicaset that has to give its shards up, the second one that has
// none.
func TestACrashWhileASpareMoves(t *testing.T) {
	crashAtEach(t, 3, 100, func(c *cluster, settle func()) {
		for _, name := range []string{"b", "c", "d", "e", "f"} {
			c.join(name, "", "", "")
		}
		settle()
		c.apply(&meta.WeightSet{Replicaset: 2, ByUser: true})
		settle()
		c.expel(6)
		settle()
		for _, id := range []uint64{3, 5} {
			c.kill(id)
			away(c)
			c.expel(id)
			settle()
		}
		if i, _ := c.machine.Instance(4); i.Replicaset != 1 {
			c.broken("d did not take the place of a dead one")
		}
	})
}

func (c *cluster) expel(instance uint64) {
	c.apply(&meta.InstanceUpdate{Instance: instance, Target: meta.Expelled, Force: true})
}

func crashAtEach(t *testing.T, factor uint32, least int, story func(c *cluster, settle func())) {
	total, want := crashAt(t, factor, -1, carried, story)
	if total < least {
		t.Fatalf("%d steps only", total)
	}
	for k := range total {
		for _, f := range []fate{lost, mute} {
			if _, got := crashAt(t, factor, k, f, story); got != want {
				t.Fatalf("crash at step %d, fate %d:\n%s\nwithout a crash:\n%s", k, f, got, want)
			}
		}
	}
}

// crashAt says how many steps were taken, and what came of them.
func crashAt(t *testing.T, factor uint32, k int, f fate, story func(c *cluster, settle func())) (steps int, status string) {
	c := newCluster(16, factor, 2)
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
	story(c, settle)
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
