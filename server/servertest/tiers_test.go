package servertest_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// startTiers runs a cluster of instances with these tiers, and a client of the second one.
func startTiers(t *testing.T, tiers string, of ...string) (*servertest.Cluster, *client.Client) {
	t.Helper()
	form.SkipUntil(t, form.Full, "it starts a cluster")
	var specs []meta.TierSpec
	for text := range strings.SplitSeq(tiers, ",") {
		spec, err := server.ParseTier(text)
		if err != nil {
			t.Fatal(err)
		}
		specs = append(specs, spec)
	}
	c := servertest.StartCluster(t, len(of), servertest.Config(func(cfg *server.Config) {
		cfg.Tiers = specs
		for i, tier := range of {
			if cfg.Name == fmt.Sprintf("i%d", i) {
				cfg.Tier = tier
			}
		}
	}))
	operator, err := client.Dial(t.Context(), c.Instance(1).Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(operator.CloseWithoutRelease)
	return c, operator
}

// awaitConverged waits until nothing is left to do, with so many votes in the meta shard.
func awaitConverged(t *testing.T, operator *client.Client, voters int) {
	t.Helper()
	await.True(t, "a plan without steps and waits, and the votes", func() bool {
		plan, err := admin.New(operator).Plan(t.Context())
		return err == nil && len(plan.Steps)+len(plan.Waits) == 0 && plan.Health.State == "healthy" && plan.Health.Meta.Voters == voters
	})
}

func named(s *meta.State, i int) meta.Instance {
	in, _ := s.InstanceByName(fmt.Sprintf("i%d", i))
	return in
}

// copies is how many data shards an instance has.
func copies(s *meta.State, i int) (n int) {
	in := named(s, i)
	for _, x := range s.Shards() {
		if _, has := x.On(in.ID); has {
			n++
		}
	}
	return n
}

// lockIn acquires and releases a lock. It returns the session's id.
func lockIn(t *testing.T, c *client.Client, node, name string) uint64 {
	t.Helper()
	s, err := c.Session(t.Context(), node, client.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Mutex(name).Lock(t.Context())
	if err == nil {
		err = l.Release(t.Context())
	}
	if err == nil {
		err = s.Close(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return s.ID()
}

// TestDataTiers: each node has its data in the tier that it was created in, on instances of that
// tier alone. What happens to one tier does not concern the other.
func TestDataTiers(t *testing.T) {
	t.Parallel()
	const cold, arbiter = 0, 3
	c, operator := startTiers(t, "hot:factor=2,cold:factor=1:buckets=64:vote=false,arbiter:buckets=0", "cold", "hot", "hot", "arbiter")
	awaitConverged(t, operator, 3)
	for tier, want := range map[string]string{"arbiter": "tier arbiter holds no data; a node can be in hot, cold",
		"warm": `there is no tier "warm"; a node can be in hot, cold`} {
		_, err := admin.Nodes(operator).Create(t.Context(), "/bad", admin.NodeConfig{}, admin.InTier(tier))
		if !errors.Is(err, client.ErrBadRequest) || !strings.Contains(err.Error(), want) {
			t.Errorf("a node in %s: %v", tier, err)
		}
	}
	for path, x := range map[string]struct {
		tier string
		opts []admin.NodeOption
	}{"/x": {"hot", nil}, "/archive/old": {"cold", []admin.NodeOption{admin.InTier("cold")}}} {
		info, err := admin.Nodes(operator).Create(t.Context(), path, admin.NodeConfig{}, x.opts...)
		if err == nil {
			info, err = admin.Nodes(operator).Describe(t.Context(), path)
		}
		if err != nil || info.TierName != x.tier {
			t.Fatalf("node %s: %+v, %v", path, info, err)
		}
	}
	// A missing parent is where its child is.
	if info, err := admin.Nodes(operator).Describe(t.Context(), "/archive"); err != nil || info.TierName != "cold" {
		t.Errorf("the parent: %+v, %v", info, err)
	}
	c.Await("each shard on instances of its tier, and no vote of a cold one", func(s *meta.State) bool {
		for _, x := range s.Shards() {
			for _, r := range x.Replicas {
				if in, _ := s.Instance(r.Instance); in.Tier != x.Tier {
					return false
				}
			}
		}
		group := s.MetaShard()
		r, ok := group.On(named(s, cold).ID)
		return ok && r.Role == meta.RoleNonVoting && copies(s, cold) > 0 && copies(s, arbiter) == 0
	})
	if id := lockIn(t, operator, "/x", "lock"); protocol.SessionTier(id) != 0 {
		t.Errorf("a session of the first tier is %d", id)
	}
	if id := lockIn(t, operator, "/archive/old", "lock"); protocol.SessionTier(id) != 1 {
		t.Errorf("a session of the second tier is %d", id)
	}
	s, err := operator.Session(t.Context(), "/archive/old", client.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]uint64{} // names -> tokens
	for i := range 20 {
		l, err := s.Acquire(t.Context(), fmt.Sprint("seat", i), client.CreateLimit(2))
		if err != nil {
			t.Fatal(err)
		}
		held[l.Name()] = l.Token()
	}
	owners := func() map[string]uint64 {
		t.Helper()
		n, err := operator.Node(t.Context(), "/archive/old")
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]uint64{}
		for sem, err := range n.List(t.Context(), "seat") {
			if err != nil {
				t.Fatal(err)
			}
			d, err := n.Describe(t.Context(), sem.Name, client.IncludeOwners(), client.ReadConsistency(client.Strict))
			if err != nil || len(d.Owners) != 1 || d.Owners[0].Session != s.ID() {
				t.Fatalf("%s: %+v, %v", sem.Name, d, err)
			}
			got[sem.Name] = d.Owners[0].Token
		}
		return got
	}
	if got := owners(); !maps.Equal(got, held) {
		t.Errorf("the list has %v, want %v", got, held)
	}
	if _, err := admin.New(operator).SetShards(t.Context(), "cold", 2); err != nil {
		t.Fatal(err)
	}
	awaitConverged(t, operator, 3)
	if got := owners(); !maps.Equal(got, held) {
		t.Errorf("after its buckets moved the list has %v, want %v", got, held)
	}

	c.Kill(cold)
	c.Await("that it is Offline", func(s *meta.State) bool { return named(s, cold).Current.Variant == meta.Offline })
	lockIn(t, operator, "/x", "without the cold one")
	if _, err := admin.Nodes(operator).Create(t.Context(), "/y", admin.NodeConfig{}); err != nil {
		t.Error(err)
	}
	await.True(t, "the health of what is left", func() bool {
		h, err := admin.New(operator).Health(t.Context())
		return err == nil && h.State == "broken" && h.Meta.Voters == 3 && h.Meta.FaultTolerance == 1
	})
	c.Restart(cold)
	c.WaitReady()
	awaitConverged(t, operator, 3)
	if got := owners(); !maps.Equal(got, held) {
		t.Errorf("after the restart the list has %v, want %v", got, held)
	}
	lockIn(t, operator, "/archive/old", "with all of them")
}

// TestVotersWithoutData: where the tier with data does not vote, one without data makes the cluster
// and governs it.
func TestVotersWithoutData(t *testing.T) {
	t.Parallel()
	const data = 0
	c, operator := startTiers(t, "data:factor=2:vote=false,voter:buckets=0", "data", "data", "voter", "voter", "voter")
	awaitConverged(t, operator, 3)
	lockIn(t, operator, "/default", "with all of them")
	c.Kill(data)
	c.Await("that it is Offline", func(s *meta.State) bool { return named(s, data).Current.Variant == meta.Offline })
	c.Restart(data)
	c.WaitReady()
	awaitConverged(t, operator, 3)
	lockIn(t, operator, "/default", "again")
}

// TestArbiterTier: an arbiter votes about the cluster and has no data, although its address is the
// smallest and it could make the cluster otherwise. Two instances with data and one arbiter decide
// about the cluster without any one of them.
func TestArbiterTier(t *testing.T) {
	t.Parallel()
	const arbiter, data = 0, 2
	c, operator := startTiers(t, "data:factor=2,arbiter:buckets=0", "arbiter", "data", "data")
	converged := func() {
		t.Helper()
		awaitConverged(t, operator, 3)
		c.Await("no data on the arbiter", func(s *meta.State) bool { return copies(s, arbiter) == 0 })
	}
	converged()
	status, err := admin.New(operator).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, x := range status.Tiers {
		lines = append(lines, fmt.Sprintf("%s: %d copies, %d buckets", x.Name, x.ReplicationFactor, x.Buckets))
	}
	for _, x := range status.Instances {
		lines = append(lines, fmt.Sprintf("%s: %s in %s", x.Name, x.Tier, x.Replicaset))
	}
	slices.Sort(lines)
	if want := []string{"arbiter: 1 copies, 0 buckets", "data: 2 copies, 4096 buckets",
		"i0: arbiter in arbiter_1", "i1: data in data_1", "i2: data in data_1"}; !slices.Equal(lines, want) {
		t.Errorf("the cluster has\n%q, want\n%q", lines, want)
	}

	lock := func(name string) {
		t.Helper()
		lockIn(t, operator, "/default", name)
	}
	offline := func(i int) {
		t.Helper()
		c.Await("that it is Offline", func(s *meta.State) bool {
			in := named(s, i)
			return in.Current.Variant == meta.Offline && in.Target.Variant == meta.Offline
		})
	}
	c.Kill(arbiter)
	offline(arbiter)
	lock("without the arbiter")
	if _, err := admin.Nodes(operator).Create(t.Context(), "/without-the-arbiter", admin.NodeConfig{}); err != nil {
		t.Error(err)
	}
	c.Restart(arbiter)
	c.WaitReady()
	converged()
	c.Kill(data)
	offline(data) // the arbiter and the other instance have decided that
	c.Restart(data)
	c.WaitReady()
	converged()
	lock("with all of them")
}
