package integration

import (
	"errors"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// stopped waits until an instance has stopped by itself because it was expelled, and closes it.
func (k *clusterKit) stopped(name string) {
	k.t.Helper()
	s := k.server(name)
	k.eventually(name+" to stop by itself", func() bool { return s.Err() != nil })
	if !errors.Is(s.Err(), cluster.ErrExpelled) {
		k.t.Errorf("%s stopped with %v", name, s.Err())
	}
	k.kill(name)
}

// TestExpel: an instance of a replicaset goes for good, stops, and cannot come back; a new one
// takes its place and its name.
func TestExpel(t *testing.T) {
	form.SkipUntil(t, form.Full, "an instance goes and another one comes; TestExpelSet has the rules")
	t.Parallel()
	k := newClusterKit(t, 3)
	k.startAll("a", "b", "c")
	k.awaitOn("a", "three instances that work", balanced(3, 3, 3))
	a := k.server("a")
	c := instanceNamed(a.Meta.State(), "c")
	if _, err := a.Governor.Expel(t.Context(), c.ID, false); protocol.StatusOf(err) != protocol.StatusPreconditionFailed {
		t.Errorf("an instance that is Online was expelled without force: %v", err)
	}
	if _, err := a.Governor.Expel(t.Context(), c.ID, true); err != nil {
		t.Fatal(err)
	}
	k.awaitOn("a", "c expelled", func(s *meta.State) bool { i := instanceNamed(s, "c"); return i.Expelled() })
	k.stopped("c")
	k.awaitOn("b", "two instances that work", balanced(2, 2, 2))
	if id := k.identity("c"); !id.Expelled {
		t.Error("the folder does not say that its instance is expelled")
	}
	k.refused(k.start("c", "a", "b"), "current instance is expelled from the cluster")
	k.disks["c"] = nil
	k.must("c", "a", "b")
	k.awaitOn("c", "three instances again", func(s *meta.State) bool {
		i := instanceNamed(s, "c")
		return i.ID != c.ID && balanced(3, 3, 3)(s)
	})
}

// TestExpelDead: an instance that does not come back is expelled; if it comes back all the same, it
// finds out, however much it has missed.
func TestExpelDead(t *testing.T) {
	form.SkipUntil(t, form.Long, "an instance is taken for dead; TestSpareReplacesDeadInstance expels one too")
	t.Parallel()
	k := newClusterKit(t, 3)
	k.startAll("a", "b", "c")
	k.awaitOn("a", "three instances that work", balanced(3, 3, 3))
	k.kill("c")
	a := k.server("a")
	k.awaitOn("a", "c Offline", func(s *meta.State) bool { i := instanceNamed(s, "c"); return i.Current.Variant == meta.Offline })
	if _, err := a.Governor.Expel(t.Context(), instanceNamed(a.Meta.State(), "c").ID, false); err != nil {
		t.Fatal(err)
	}
	k.awaitOn("b", "two instances that work", balanced(2, 2, 2))
	k.refused(k.start("c", "a", "b"), "current instance is expelled from the cluster")
}

// TestExpelCutOff: an instance that is expelled while it is cut off learns of it when it is not any
// more.
func TestExpelCutOff(t *testing.T) {
	form.SkipUntil(t, form.Full, "an instance is cut off; TestExpelSet has the rules")
	t.Parallel()
	k := newClusterKit(t, 3)
	k.startAll("a", "b", "c")
	k.awaitOn("a", "three instances that work", balanced(3, 3, 3))
	k.isolate("c", "a", "b")
	a := k.server("a")
	k.awaitOn("a", "c Offline", func(s *meta.State) bool { i := instanceNamed(s, "c"); return i.Current.Variant == meta.Offline })
	c := instanceNamed(a.Meta.State(), "c").ID
	if _, err := a.Governor.Expel(t.Context(), c, true); err != nil {
		t.Fatal(err)
	}
	// What c has sent before it was cut off, or before it knew, comes now.
	for _, name := range []string{"a", "b"} {
		err := k.server(name).Membership.SetTarget(t.Context(),
			meta.InstanceUpdate{Instance: c, Target: meta.Online, Reason: meta.ReasonAutoOnline})
		if st := protocol.StatusOf(err); st != protocol.StatusPreconditionFailed && st != protocol.StatusWrongShard {
			t.Errorf("c is made Online at %s: %v", name, err)
		}
	}
	k.awaitOn("b", "two instances that work", balanced(2, 2, 2))
	k.net.HealAll()
	k.stopped("c")
}

// TestExpelSet: the last instance of a replicaset gives its buckets away before it goes, and the
// last one of all stays.
func TestExpelSet(t *testing.T) {
	t.Parallel()
	k := newClusterKit(t, 1)
	k.must("a")
	k.must("b", "a")
	k.awaitOn("a", "two replicasets", balanced(2, 2, 1))
	k.awaitOn("a", "buckets on both", func(s *meta.State) bool {
		for _, n := range shares(s) {
			if n != 16 {
				return false
			}
		}
		return len(s.Moves()) == 0
	})
	a := k.server("a")
	if _, err := a.Governor.Expel(t.Context(), instanceNamed(a.Meta.State(), "a").ID, true); err != nil { // the founder, which governs
		t.Fatal(err)
	}
	k.awaitOn("b", "a expelled", func(s *meta.State) bool { i := instanceNamed(s, "a"); return i.Expelled() && balanced(1, 1, 1)(s) })
	k.stopped("a")
	b := k.server("b")
	for _, n := range shares(b.Meta.State()) {
		if n != 32 {
			t.Errorf("a shard of the last replicaset has %d of 64 buckets", n)
		}
	}
	if _, err := b.Governor.Expel(t.Context(), b.Instance(), true); protocol.StatusOf(err) != protocol.StatusPreconditionFailed {
		t.Errorf("the last instance was expelled: %v", err)
	}
	k.refused(k.start("a"), "current instance is expelled from the cluster")
	k.kill("b")
	k.must("b")
}

// TestSpareReplacesDeadInstance: a fourth instance has no shards until a dead one is expelled. Then
// it is a member of the first replicaset, with copies that count: it outlives a restart, and
// another death.
func TestSpareReplacesDeadInstance(t *testing.T) {
	t.Parallel()
	k := newClusterKit(t, 3)
	k.startAll("a", "b", "c")
	k.must("d", "a", "b", "c")
	k.awaitOn("a", "three instances that work, and a spare one", balanced(4, 3, 3))
	if n := len(k.server("d").Serving.Shards.All()); n != 0 {
		t.Errorf("the spare instance has %d shards", n)
	}
	k.node("a", "/before")
	k.kill("c")
	a := k.server("a")
	k.awaitOn("a", "c Offline", func(s *meta.State) bool {
		i := instanceNamed(s, "c")
		return i.Current.Variant == meta.Offline && !leadsAny(s, i.ID)
	})
	if _, err := a.Governor.Expel(t.Context(), instanceNamed(a.Meta.State(), "c").ID, false); err != nil {
		t.Fatal(err)
	}
	moved := func(s *meta.State) bool {
		return instanceNamed(s, "d").Replicaset == instanceNamed(s, "a").Replicaset && balanced(3, 3, 3)(s)
	}
	k.awaitOn("b", "d in the place of c", moved)
	k.kill("d")
	k.must("d")
	k.awaitOn("d", "itself again", moved)
	k.kill("b")
	k.node("d", "/after") // every shard must take part
	d := k.server("d")
	if n, want := len(d.Serving.Shards.All()), len(d.Meta.State().Shards()); n != want {
		t.Errorf("the instance has %d of %d shards", n, want)
	}
}

// leadsAny reports whether an instance leads a shard, or is to.
func leadsAny(s *meta.State, instance uint64) bool {
	return slices.ContainsFunc(s.Shards(), func(x meta.Shard) bool { return x.Master == instance || x.TargetMaster == instance })
}
