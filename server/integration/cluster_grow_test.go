package integration

import (
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestGrow: a cluster of one takes in others, one after another, and each of them may stop and
// start again at any time.
func TestGrow(t *testing.T) {
	form.SkipUntil(t, form.Full, "instances join and start again; TestSpareReplacesDeadInstance has a cluster that changes")
	t.Parallel()
	k := newClusterKit(t, 3)
	k.must("a")
	k.awaitOn("a", "an instance alone", func(s *meta.State) bool { return len(s.Instances()) == 1 })
	k.must("b", "a")
	k.awaitOn("a", "two instances", func(s *meta.State) bool { return len(membersOf(s)) == 2 && metaVoters(s) == 2 })
	k.must("c", "b") // any instance can be asked
	for _, n := range k.names() {
		k.awaitOn(n, "three instances that work", balanced(3, 3, 3))
	}
	k.node("c", "/grown")
	for _, n := range instanceNames(3) {
		if n != "a" && !form.Is(form.Long) { // the founder, which governs, is enough
			break
		}
		k.kill(n)
		k.must(n, "a", "b", "c")
		k.awaitOn(n, "three instances after a restart", balanced(3, 3, 3))
	}
	k.node("a", "/restarted")
}

// TestColdRestart: all instances lose power at once, and come back in another order; then a
// majority does.
func TestColdRestart(t *testing.T) {
	t.Parallel()
	k := newClusterKit(t, 3)
	k.startAll("a", "b", "c")
	k.awaitOn("a", "three instances that work", balanced(3, 3, 3))
	k.node("b", "/before")
	k.kill("a", "b", "c")
	errs := make(chan error, 3)
	for _, n := range []string{"c", "a", "b"} { // each waits for a majority
		go func() { errs <- k.start(n) }()
	}
	for range 3 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	k.awaitOn("b", "three instances after the loss of all", balanced(3, 3, 3))
	if _, ok := k.server("a").Meta.State().NodeAt("/before"); !ok {
		t.Error("a node is gone")
	}
	k.kill("c", "b")
	k.mustAll([]string{"b", "c"}, "a")
	k.awaitOn("c", "three instances after the loss of two", balanced(3, 3, 3))
	k.node("c", "/after")
}

// TestTwoReplicasets: three more instances become a replicaset of their own, which gets half of the
// buckets, and five votes are enough.
func TestTwoReplicasets(t *testing.T) {
	form.SkipUntil(t, form.Long, "six instances; TestBucketsMoveUnderLoad has as many")
	t.Parallel()
	k := newClusterKit(t, 3)
	k.startAll("a", "b", "c")
	k.awaitOn("a", "three instances that work", balanced(3, 3, 3))
	k.node("a", "/early")
	k.mustAll([]string{"d", "e", "f"}, "a", "b")
	for _, n := range k.names() {
		k.awaitOn(n, "six instances, two replicasets", func(s *meta.State) bool {
			for _, n := range shares(s) {
				if n != 16 {
					return false
				}
			}
			return balanced(6, 5, 3)(s) && len(shares(s)) == 4
		})
	}
	k.node("f", "/late")
	k.kill("a", "d") // one of each
	k.awaitOn("b", "masters and votes elsewhere", func(s *meta.State) bool {
		for _, x := range s.Shards() {
			if i, _ := s.Instance(x.Master); x.Master == 0 || i.Name == "a" || i.Name == "d" || x.Master != x.TargetMaster {
				return false
			}
		}
		return isOffline("a")(s) && isOffline("d")(s)
	})
	k.mustAll([]string{"a", "d"})
	k.awaitOn("f", "six instances again", balanced(6, 5, 3))
}
