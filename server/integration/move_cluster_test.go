package integration

import (
	"context"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/server/shardhost"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// moveSizes are the sizes of the tests of moves, in form long the full ones.
func moveSizes() (buckets uint32, sessions, names int) {
	if form.Is(form.Long) {
		return 4096, 200, 40
	}
	return 256, 24, 8
}

// setBuckets is how many buckets each replicaset has.
func setBuckets(s *meta.State) map[uint64]uint32 {
	out := map[uint64]uint32{}
	for _, t := range s.Tiers() {
		for _, run := range t.Runs {
			if x, ok := s.Shard(run.Shard); ok {
				out[x.Replicaset] += run.Count
			}
		}
	}
	return out
}

// divided reports whether nothing moves and two replicasets have their parts.
func divided(first, second uint32) func(s *meta.State) bool {
	return func(s *meta.State) bool {
		if len(s.Moves()) > 0 {
			return false
		}
		sets := s.Replicasets()
		if len(sets) != 2 {
			return false
		}
		has := setBuckets(s)
		return has[sets[0].ID] == first && has[sets[1].ID] == second
	}
}

// sixInstances is a cluster of three under a workload, and then one of six, with the buckets
// divided.
func sixInstances(t *testing.T) (*clusterKit, *moveWorkload, uint32) {
	t.Helper()
	buckets, sessions, names := moveSizes()
	k := newClusterKit(t, 3)
	// Leaderships that stand on a machine that is busy with much else.
	k.change = func(_ string, c *server.Config) {
		c.Buckets, c.RTT, c.OfflineAfter = buckets, 50*time.Millisecond, 5*time.Second
	}
	k.startAll("a", "b", "c")
	k.arrives("three instances that work", stable(3, 3))
	var addresses []string
	for _, s := range k.run {
		addresses = append(addresses, s.Addr())
	}
	workload := newMoveWorkload(t, addresses, 4, sessions, names)
	workload.begin()
	workload.progress(100)
	began := time.Now()
	errs := make(chan error, 3)
	for _, n := range []string{"d", "e", "f"} {
		go func() { errs <- k.start(n, "a", "b", "c") }()
	}
	for range 3 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	k.arrives("six instances", stable(3, 6))
	k.arrives("the buckets divided evenly", divided(buckets/2, buckets/2))
	t.Logf("six instances after %v", time.Since(began).Round(time.Millisecond))
	workload.progress(100)
	return k, workload, buckets
}

// governs is the name of the instance that leads the meta shard.
func (k *clusterKit) governs() string {
	for name, s := range k.run {
		if s.Meta.Leading() {
			return name
		}
	}
	return ""
}

// weigh gives the two replicasets their weights.
func (k *clusterKit) weigh(first, second uint32) {
	k.t.Helper()
	s := k.run["a"]
	sets := s.Meta.State().Replicasets()
	for i, w := range []uint32{first, second} {
		if err := s.Governor.SetWeight(k.t.Context(), sets[i].ID, w); err != nil {
			k.t.Fatal(err)
		}
	}
}

// arrives waits until every instance sees what in the map, for as long as it takes on a slow
// machine.
func (k *clusterKit) arrives(what string, f func(s *meta.State) bool) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), 10*time.Minute)
	defer cancel()
	for name, s := range k.run {
		if err := s.Governor.Await(ctx, f); err != nil {
			plan, _ := s.Member.FetchPlan(context.Background())
			k.t.Fatalf("%s does not see %s: %v\n%s\n%s", name, what, err, describeState(s.Meta.State()), plan)
		}
	}
}

// TestBucketsMoveUnderLoad: three instances become six, the buckets move to the new replicaset and
// by weights, the meta shard changes its leader while they do, and a move is given up half way:
// nobody who works with them sees more than a delay.
func TestBucketsMoveUnderLoad(t *testing.T) {
	form.SkipUntil(t, form.Full, "six instances; TestShardCountUnderLoad has three")
	k, workload, buckets := sixInstances(t)
	for _, x := range []struct {
		name          string
		first, second uint32
		meanwhile     func(done func(*meta.State) bool)
	}{
		{"weights", 1, 3, func(func(*meta.State) bool) {}},
		{"governors", 3, 1, k.changeGovernors},
		{"even", 1, 1, func(func(*meta.State) bool) {}},
	} {
		began := time.Now()
		done := divided(buckets*x.first/(x.first+x.second), buckets*x.second/(x.first+x.second))
		k.weigh(x.first*1000, x.second*1000)
		x.meanwhile(done)
		k.arrives(x.name, done)
		t.Logf("%s, %d:%d, after %v", x.name, x.first, x.second, time.Since(began).Round(time.Millisecond))
		workload.progress(100)
	}
	k.giveUp(workload, buckets)
	workload.finish()
}

// changeGovernors has one instance after another lead the meta shard, at most until the buckets are
// where they are to be.
func (k *clusterKit) changeGovernors(done func(*meta.State) bool) {
	for range 3 {
		s, before := k.moveGovernor()
		if s == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(k.t.Context(), time.Minute)
		_ = s.Governor.Await(ctx, func(s *meta.State) bool { return s.MapVersion() > before || done(s) })
		cancel()
	}
}

// moveGovernor has another instance lead the meta shard, and returns the one that did, with the
// version of its map before; nil: none leads now.
func (k *clusterKit) moveGovernor() (s *instance, version uint64) {
	name := k.governs()
	if name == "" {
		return nil, 0
	}
	s = k.run[name]
	state := s.Meta.State()
	for _, r := range state.MetaShard().Replicas {
		if r.Role == meta.RoleVoter && r.Instance != s.Instance() {
			ctx, cancel := context.WithTimeout(k.t.Context(), 5*time.Second)
			_ = shardhost.Local{Hosting: s.Hosting}.Transfer(ctx, meta.MetaShardID, r.Replica, 0)
			cancel()
			break
		}
	}
	return s, state.MapVersion()
}

// voters are the instances of a state that vote in the meta shard, by name.
func voters(s *meta.State) map[string]bool {
	out := map[string]bool{}
	for _, r := range s.MetaShard().Replicas {
		if i, ok := s.Instance(r.Instance); ok && r.Role == meta.RoleVoter {
			out[i.Name] = true
		}
	}
	return out
}

// giveUp breaks the links between the replicasets while buckets move, so that the move is given up:
// the buckets stay where they were, and move when the links are back. The side that can go on
// deciding gives, the other instance is to take.
func (k *clusterKit) giveUp(workload *moveWorkload, buckets uint32) {
	k.t.Helper()
	sides := [][]string{{"a", "b", "c"}, {"d", "e", "f"}}
	all := voters(k.run["a"].Meta.State())
	votes, giving := 0, 1
	for _, n := range sides[0] {
		if all[n] {
			votes++
		}
	}
	if votes*2 > len(all) {
		giving = 0
	}
	decides := k.run[sides[giving][0]]
	links := func(f func(a, b string)) {
		for _, a := range sides[0] {
			for _, b := range sides[1] {
				f(k.address(a), k.address(b))
			}
		}
	}
	heavy := []uint32{1000, 1000}
	heavy[1-giving] = 3000
	given := false
	for tries := 0; !given; tries++ {
		if tries == 20 {
			k.t.Log("the moves were over each time before the links broke")
			return
		}
		k.weigh(heavy[0], heavy[1])
		ctx, cancel := context.WithTimeout(k.t.Context(), time.Minute)
		if err := decides.Governor.Await(ctx, func(s *meta.State) bool { return len(s.Moves()) > 0 }); err != nil {
			k.t.Fatal(err)
		}
		links(k.net.CutBoth)
		if err := decides.Governor.Await(ctx, func(s *meta.State) bool {
			moves := s.Moves()
			for _, m := range moves {
				given = given || m.Phase == meta.Aborted
			}
			return given || len(moves) == 0
		}); err != nil {
			k.t.Fatalf("after the cut: %v\n%s", err, describeState(decides.Meta.State()))
		}
		cancel()
		if given {
			workload.progress(50)
		}
		links(k.net.HealBoth)
		if !given {
			k.weigh(1000, 1000)
			k.arrives("the buckets divided evenly again", divided(buckets/2, buckets/2))
		}
	}
	want := []uint32{buckets / 4, buckets / 4}
	want[1-giving] = buckets * 3 / 4
	began := time.Now()
	k.arrives("the move that was given up, done", divided(want[0], want[1]))
	k.t.Logf("done %v after the links were back", time.Since(began).Round(time.Millisecond))
	workload.progress(100)
}
