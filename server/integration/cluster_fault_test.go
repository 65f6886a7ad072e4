package integration

import (
	"maps"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

func isOffline(name string) func(s *meta.State) bool {
	return func(s *meta.State) bool {
		i := instanceNamed(s, name)
		return i.Current.Variant == meta.Offline && i.Target.Variant == meta.Offline
	}
}

// TestOfflineAndBack: an instance that is cut off is taken for dead, its masters move, its buckets
// stay; when it is heard again it comes back by itself.
func TestOfflineAndBack(t *testing.T) {
	t.Parallel()
	k := newClusterKit(t, 3)
	k.startAll("a", "b", "c")
	k.awaitOn("a", "three instances that work", balanced(3, 3, 3))
	before := shares(k.server("a").Meta.State())
	k.isolate("c", "a", "b")
	c := k.server("c").Instance()
	k.awaitOn("a", "c Offline, and no master", func(s *meta.State) bool {
		for _, x := range s.Shards() {
			if x.Master == c || x.Master == 0 || x.Master != x.TargetMaster {
				return false
			}
		}
		return isOffline("c")(s)
	})
	if after := shares(k.server("a").Meta.State()); !maps.Equal(before, after) {
		t.Errorf("buckets moved: %v, then %v", before, after)
	}
	k.net.HealAll()
	for _, n := range k.names() {
		k.awaitOn(n, "three instances again", balanced(3, 3, 3))
	}
	if i := instanceNamed(k.server("a").Meta.State(), "c"); i.Reason != meta.ReasonAutoOnline {
		t.Errorf("c came back because of %q", i.Reason)
	}
}

// TestVoteLostWhileDown: a voter of the meta shard that is down loses its vote to another instance,
// and gets a new replica, with which it starts.
func TestVoteLostWhileDown(t *testing.T) {
	t.Parallel()
	k := newClusterKit(t, 1)
	k.startAll("a", "b", "c", "d")
	k.awaitOn("a", "four instances, three votes", balanced(4, 3, 1))
	var victim string
	for _, r := range k.server("a").Meta.State().MetaShard().Replicas {
		if i, _ := k.server("a").Meta.State().Instance(r.Instance); r.Role == meta.RoleVoter && i.Name != "a" {
			victim = i.Name
		}
	}
	old := k.identity(victim).MetaReplica
	k.kill(victim)
	replaced := func(s *meta.State) bool {
		x := s.MetaShard()
		i := instanceNamed(s, victim)
		r, ok := x.On(i.ID)
		return ok && r.Replica != old && metaVoters(s) == 3
	}
	k.awaitOn("a", "its vote gone to another", func(s *meta.State) bool { return isOffline(victim)(s) && replaced(s) })
	// It comes back together with all others, so that nobody can tell it at first.
	k.kill(k.names()...)
	errs := make(chan error, 4)
	for _, n := range instanceNames(4) {
		go func() { errs <- k.start(n) }()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	k.awaitOn(victim, "four instances again", balanced(4, 3, 1))
	if id := k.identity(victim); id.MetaReplica == old || id.MetaLogged != id.MetaReplica {
		t.Errorf("its replica of the meta shard is %d, logged %d, and was %d", id.MetaReplica, id.MetaLogged, old)
	}
	if !isLong() {
		return
	}
	// And once more, where the others can tell it.
	k.kill(victim)
	k.must(victim)
	k.awaitOn(victim, "four instances once more", balanced(4, 3, 1))
}

// TestVoteLostWhileCutOff: the same with an instance that runs, and hears nothing of it.
func TestVoteLostWhileCutOff(t *testing.T) {
	t.Parallel()
	k := newClusterKit(t, 1)
	k.startAll("a", "b", "c", "d")
	k.awaitOn("a", "four instances, three votes", balanced(4, 3, 1))
	state := k.server("a").Meta.State()
	var victim string
	var others []string
	for _, r := range state.MetaShard().Replicas {
		if i, _ := state.Instance(r.Instance); r.Role == meta.RoleVoter && i.Name != "a" {
			victim = i.Name
		}
	}
	for _, n := range k.names() {
		if n != victim {
			others = append(others, n)
		}
	}
	old := k.identity(victim).MetaReplica
	revision := k.server(victim).Meta.State().Revision()
	k.isolate(victim, others...)
	k.awaitOn("a", "its vote gone to another", func(s *meta.State) bool {
		x := s.MetaShard()
		r, ok := x.On(instanceNamed(s, victim).ID)
		return isOffline(victim)(s) && ok && r.Replica != old && metaVoters(s) == 3
	})
	k.net.HealAll()
	for _, n := range k.names() {
		k.awaitOn(n, "four instances again", balanced(4, 3, 1))
	}
	if now := k.server(victim).Meta.State().Revision(); now < revision {
		t.Errorf("the map went back from %d to %d", revision, now)
	}
}

// TestVoteMovesFarther: a vote goes to an instance that is farther from the others, while the one
// that has it lives on.
func TestVoteMovesFarther(t *testing.T) {
	long(t)
	t.Parallel()
	k := newClusterKit(t, 1)
	dc := map[string]string{"a": "1", "b": "1", "c": "2", "d": "3"}
	k.change = func(name string, c *server.Config) { c.FailureDomain = map[string]string{"DC": dc[name]} }
	for i, n := range instanceNames(4) {
		k.must(n, instanceNames(i)...)
	}
	for _, n := range k.names() {
		k.awaitOn(n, "votes in three data centres", func(s *meta.State) bool {
			where := map[string]bool{}
			for _, r := range s.MetaShard().Replicas {
				if i, ok := s.Instance(r.Instance); ok && r.Role == meta.RoleVoter && r.TargetRole == meta.RoleVoter {
					where[dc[i.Name]] = true
				}
			}
			return len(where) == 3 && balanced(4, 3, 1)(s)
		})
	}
	if k.server("a").Err() != nil || k.server("b").Err() != nil {
		t.Error("an instance failed")
	}
}

// TestOneWayCuts: where only one direction is lost, and only between some, the cluster goes on, and
// nobody comes and goes for ever.
func TestOneWayCuts(t *testing.T) {
	long(t)
	t.Parallel()
	k := newClusterKit(t, 3)
	k.startAll("a", "b", "c")
	k.awaitOn("a", "three instances that work", balanced(3, 3, 3))
	incarnations := func() (n uint64) {
		for _, i := range k.server("a").Meta.State().Instances() {
			n += i.Target.Incarnation
		}
		return n
	}
	before := incarnations()
	for _, way := range [][2]string{{"a", "b"}, {"b", "c"}, {"c", "a"}} {
		k.net.Cut(k.address(way[0]), k.address(way[1]))
		select { // long enough to be taken for dead, twice
		case <-time.After(2 * time.Second):
		case <-k.server("a").Done():
		}
		for _, n := range k.names() {
			if err := k.server(n).Err(); err != nil {
				t.Fatalf("%s failed: %v", n, err)
			}
		}
		k.net.HealAll()
		for _, n := range k.names() {
			k.awaitOn(n, "three instances again", balanced(3, 3, 3))
		}
	}
	k.node("b", "/healed")
	if n := incarnations() - before; n > 9 {
		t.Errorf("instances came back %d times in three cuts", n)
	}
}
