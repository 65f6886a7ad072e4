package servertest_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestArbiterTier: an arbiter votes about the cluster and has no data, although its address is the
// smallest and it could make the cluster otherwise. Two instances with data and one arbiter decide
// about the cluster without any one of them.
func TestArbiterTier(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a cluster")
	}
	var tiers []meta.TierSpec
	for _, text := range []string{"data:factor=2", "arbiter:buckets=0"} {
		spec, err := server.ParseTier(text)
		if err != nil {
			t.Fatal(err)
		}
		tiers = append(tiers, spec)
	}
	const arbiter, data = 0, 2
	c := servertest.StartCluster(t, 3, servertest.Config(func(cfg *server.Config) {
		cfg.Tiers, cfg.Tier = tiers, "data"
		if cfg.Name == "i0" {
			cfg.Tier = "arbiter"
		}
	}))
	named := func(s *meta.State, i int) meta.Instance {
		in, _ := s.InstanceByName(fmt.Sprintf("i%d", i))
		return in
	}
	operator, err := client.Dial(t.Context(), c.Instance(1).Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(operator.CloseWithoutRelease)
	converged := func() {
		t.Helper()
		await.True(t, "a plan without steps and waits, and three votes", func() bool {
			plan, err := admin.New(operator).Plan(t.Context())
			return err == nil && len(plan.Steps)+len(plan.Waits) == 0 && plan.Health.State == "healthy" && plan.Health.Meta.Voters == 3
		})
		c.Await("no data on the arbiter", func(s *meta.State) bool {
			i := named(s, arbiter)
			return !slices.ContainsFunc(s.Shards(), func(x meta.Shard) bool { _, has := x.On(i.ID); return has })
		})
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
		s, err := operator.Session(t.Context(), "/default")
		if err != nil {
			t.Fatal(err)
		}
		l, err := s.Mutex(name).Lock(t.Context())
		if err == nil {
			err = l.Release(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
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
	if _, err := operator.CreateNode(t.Context(), "/without-the-arbiter", client.NodeConfig{}); err != nil {
		t.Error(err)
	}
	c.Restart(arbiter)
	c.WaitReady()
	converged()
	c.Kill(data)
	offline(data) // the arbiter and the other one have decided that
	c.Restart(data)
	c.WaitReady()
	converged()
	lock("with all of them")
}
