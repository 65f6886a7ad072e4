package integration

import (
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

func isOffline(name string) func(s *meta.State) bool {
	return func(s *meta.State) bool {
		i := instanceNamed(s, name)
		return i.Current.Variant == meta.Offline && i.Target.Variant == meta.Offline
	}
}

// TestVoteLostWhileDown: a voter of the meta shard that is down loses its vote to another instance,
// and gets a new replica, with which it starts.
func TestVoteLostWhileDown(t *testing.T) {
	form.SkipUntil(t, form.Full, "four instances, one of which is taken for dead")
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
	if !form.Is(form.Long) {
		return
	}
	// And once more, where the others can tell it.
	k.kill(victim)
	k.must(victim)
	k.awaitOn(victim, "four instances once more", balanced(4, 3, 1))
}

// TestVoteLostWhileCutOff: the same with an instance that runs, and hears nothing of it.
func TestVoteLostWhileCutOff(t *testing.T) {
	form.SkipUntil(t, form.Full, "four instances, one of which is cut off")
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
