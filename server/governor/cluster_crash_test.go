package governor

import (
	"context"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestCrashAtEachStep has a cluster grow to two replicasets, lose an instance, get it back and
// expel a replicaset. For each step that is taken on the way there is a run in which the governor
// ends with that step: it was carried out, or it was lost, and another governor goes on. Each ends
// right.
func TestCrashAtEachStep(t *testing.T) {
	t.Parallel()
	crashAtEach(t, 2, 80, func(c *cluster, converge func()) {
		for _, name := range []string{"b", "c", "d"} {
			c.join(name, "", "", "")
		}
		converge()
		c.kill(1)
		awaitFailureDetection(c)
		c.start(1)
		converge()
		for id := uint64(3); id <= 4; id++ {
			c.expel(id)
		}
		converge()
	})
}

// TestCrashDuringReassignment does the same while free instances take the places of dead ones: the
// first leaves a replicaset that has to give its shards up, the second one that has none.
func TestCrashDuringReassignment(t *testing.T) {
	t.Parallel()
	crashAtEach(t, 3, 100, func(c *cluster, converge func()) {
		for _, name := range []string{"b", "c", "d", "e", "f"} {
			c.join(name, "", "", "")
		}
		converge()
		c.apply(&meta.WeightSet{Replicaset: 2, ByUser: true})
		converge()
		c.expel(6)
		converge()
		for _, id := range []uint64{3, 5} {
			c.kill(id)
			awaitFailureDetection(c)
			c.expel(id)
			converge()
		}
		if i, _ := c.machine.Instance(4); i.Replicaset != 1 {
			c.violation("d did not take the place of a dead one")
		}
	})
}

func (c *cluster) expel(instance uint64) {
	c.apply(&meta.InstanceUpdate{Instance: instance, Target: meta.Expelled, Force: true})
}

func crashAtEach(t *testing.T, factor uint32, least int, story func(c *cluster, converge func())) {
	total, want := crashAt(t, factor, -1, delivered, story)
	if total < least {
		t.Fatalf("%d steps only", total)
	}
	for k := 0; k < total; k += form.Size(7, 1, 1) {
		for _, f := range []delivery{requestLost, replyLost} {
			if _, got := crashAt(t, factor, k, f, story); got != want {
				t.Fatalf("crash at step %d, fate %d:\n%s\nwithout a crash:\n%s", k, f, got, want)
			}
		}
	}
}

// crashAt says how many steps were taken, and what came of them.
func crashAt(t *testing.T, factor uint32, k int, f delivery, story func(c *cluster, converge func())) (steps int, status string) {
	c := newCluster(16, factor, 2)
	c.violation = func(text string) { t.Fatalf("crash at step %d: %s", k, text) }
	g, p := c.governor(), NewProgress()
	converge := func() {
		for quiet := 0; quiet < 24; quiet++ {
			c.heartbeat()
			c.detectFailures()
			c.write(0, uint32(steps%16))
			for _, s := range Plan(c.view(p)) {
				quiet = 0
				crash := steps == k
				steps++
				if crash && f == requestLost {
					p = NewProgress()
					break
				}
				answer, err := g.execute(context.Background(), &s)
				if crash {
					p = NewProgress()
					break
				}
				if err == nil {
					p.Done(&s, c.now, c.now, answer)
				}
				if steps > 2000 {
					t.Fatalf("crash at step %d: it does not converge: %v", k, Explain(c.view(p)))
				}
			}
		}
		if why := c.notConverged(); why != "" {
			t.Fatalf("crash at step %d: %s", k, why)
		}
	}
	story(c, converge)
	s := clusterScript{cluster: c}
	return steps, s.instances()
}

// awaitFailureDetection lets the time pass in which dead instances are found.
func awaitFailureDetection(c *cluster) {
	for range 14 {
		c.heartbeat()
		c.detectFailures()
	}
}
