package integration

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// healthOf asks an instance over the wire.
func (k *clusterKit) healthOf(name string) (h protocol.ClusterHealth) {
	k.t.Helper()
	if err := connect(k.t, k.server(name)).ask(protocol.MethodHealth, "", &h); err != nil {
		k.t.Fatal(err)
	}
	return h
}

// TestHealthOfACluster: each instance says what works and what may be lost; of one that dies all
// say so, and the last one of three says that nothing works, since when its map is not confirmed,
// and plans nothing.
func TestHealthOfACluster(t *testing.T) {
	t.Parallel()
	k := newClusterKit(t, 3)
	k.startAll("a", "b", "c")
	for _, n := range k.names() {
		k.eventually(n+" to be healthy", func() bool {
			h := k.healthOf(n)
			return h.State == protocol.HealthHealthy && h.Confirmed && h.AnsweredBy == n && len(h.Unreachable) == 0 &&
				len(h.NextLoss) == 0 && len(h.Problems) == 0 &&
				h.Meta.Reachable == 3 && h.Meta.Leader != "" && h.Replicasets[0].Copies == 3
		})
	}

	k.kill("c")
	for _, n := range k.names() {
		k.eventually(n+" to miss c", func() bool {
			h := k.healthOf(n)
			return h.State == protocol.HealthDegraded && h.Confirmed && len(h.Unreachable) == 1 &&
				h.Unreachable[0].Instance == "c" && h.Unreachable[0].ForMS > 0 &&
				len(h.NextLoss) == 2 && h.NextLoss[0].Meta && len(h.NextLoss[0].Shards) == len(h.Shards) && h.Replicasets[0].Copies == 2 &&
				h.Replicasets[0].SinceMS == h.Unreachable[0].SinceMS && h.Replicasets[0].ForMS > 0
		})
	}
	var plan protocol.ClusterPlan
	k.eventually("the plan to wait for c, and for nothing else", func() bool {
		if err := connect(t, k.server("a")).ask(protocol.MethodPlan, "", &plan); err != nil {
			t.Fatal(err)
		}
		return len(plan.Steps) == 0 && len(plan.Waits) == 1 && plan.Waits[0].Kind == protocol.WaitExternal &&
			strings.Contains(plan.Waits[0].Why, "start it, or expel it")
	})
	metrics := func(name, line string) bool { return strings.Contains(scrape(k.server(name)), line+"\n") }
	k.eventually("metrics that show that a copy is missing", func() bool {
		return metrics("a", `signalbox_replicaset_missing_copies{replicaset="default_1"} 1`) &&
			metrics("b", `signalbox_cluster_health{state="degraded"} 1`)
	})

	k.kill("b")
	var h protocol.ClusterHealth
	k.eventually("a to see that it is alone", func() bool {
		h = k.healthOf("a")
		return h.State == protocol.HealthBroken && !h.Confirmed && h.AgeMS > 0 && len(h.Unreachable) == 2
	})
	if h.Meta.Majority || h.Meta.Leader != "" || h.Meta.Reachable != 1 ||
		!strings.Contains(h.Problems[0], "the meta shard has no majority: 1 of 3 voters is heard") {
		t.Errorf("a alone says %+v", h)
	}
	for _, x := range h.Shards {
		if x.Majority || x.Leader != "" {
			t.Errorf("a alone says of a shard %+v", x)
		}
	}
	plan = protocol.ClusterPlan{}
	if err := connect(t, k.server("a")).ask(protocol.MethodPlan, "", &plan); err != nil {
		t.Fatal(err)
	}
	if plan.Leader != "" || len(plan.Steps) != 0 || plan.Health.State != protocol.HealthBroken ||
		!strings.Contains(waitFor(&plan, governor.WaitForGovernor), "cluster recover") {
		t.Errorf("a alone plans %+v", plan)
	}
	// A change waits for the others, and the client that asked for it learns that soon.
	for _, ask := range []func(c *raw) error{
		func(c *raw) error { return c.ask(protocol.MethodDrain, `{"instance":"b","undo":true}`, nil) },
		func(c *raw) error {
			return c.call(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: "/alone"}, nil)
		},
	} {
		if err := ask(connect(t, k.server("a"))); !errors.Is(err, protocol.StatusUnavailable) ||
			!strings.Contains(err.Error(), "the meta shard has no majority: 1 of 3 voters up; start ") ||
			!strings.Contains(err.Error(), "the change may still happen") {
			t.Errorf("a change of a alone is answered %v", err)
		}
	}
	// One whose folder was lost asks to be taken in again, and is told the way that is left.
	if _, err := k.server("a").Membership.Admit(t.Context(), &cluster.JoinRequest{UUID: governor.NewUUID(), Name: "b",
		RaftAddress: k.address("b")}); !errors.Is(err, protocol.StatusUnavailable) ||
		!strings.Contains(err.Error(), "the meta shard has no majority: 1 of 3 voters up") ||
		!strings.Contains(err.Error(), "cluster recover") {
		t.Errorf("a process without a folder is told %v", err)
	}
	var status protocol.ClusterStatus
	if err := connect(t, k.server("a")).ask(protocol.MethodStatus, "", &status); err != nil ||
		status.Health.State != protocol.HealthBroken || *status.Instances[1].Reachable {
		t.Errorf("a alone has the status %+v, %v", status, err)
	}
	if !metrics("a", `signalbox_cluster_health{state="broken"} 1`) {
		t.Error("metrics do not show that nothing works")
	}

	k.mustAll([]string{"b", "c"})
	k.eventually("all to be well again", func() bool { return k.healthOf("a").State == protocol.HealthHealthy })
}

// TestLostMember: a group that decides nothing without a dead instance gives up neither its copy
// nor its buckets. So that instance is not replaced, and all who try to are told the way that is
// left.
func TestLostMember(t *testing.T) {
	form.SkipUntil(t, form.Full, "an instance is taken for dead; TestHealthOfACluster has one that dies")
	t.Parallel()
	k := newClusterKit(t, 1)
	k.startAll("a", "b", "c")
	k.await("three instances with data", func(s *meta.State) bool {
		return stable(1, 3)(s) && metaVoters(s) == 3 && len(s.Shards()) == 6 && !slices.ContainsFunc(s.Shards(), func(x meta.Shard) bool {
			return !slices.ContainsFunc(s.Tiers()[0].Runs, func(r meta.Run) bool { return r.Shard == x.ID })
		})
	})
	k.kill("c")
	var plan protocol.ClusterPlan
	k.eventually("the plan to wait for c", func() bool {
		if err := connect(t, k.server("a")).ask(protocol.MethodPlan, "", &plan); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(waitFor(&plan, "c to be online"), "start it: it cannot be expelled while shard ")
	})
	way := []string{"has no majority: 0 of 1 voters up; start c again; if its disk is lost for good, restore a backup"}
	k.refused(connect(t, k.server("a")).ask(protocol.MethodExpel, `{"instance":"c","force":true,"reason":"its disk is lost"}`, nil),
		append(way, "instance 'c' cannot be expelled now")...)
	for _, n := range k.names() {
		join := cluster.JoinRequest{UUID: governor.NewUUID(), Tier: server.DefaultTier, Version: k.server(n).Meta.State().ClusterVersion()}
		join.Name, join.RaftAddress = "c", "elsewhere:7071"
		_, err := k.server(n).Membership.Admit(t.Context(), &join)
		k.refused(err, append(way, "`c` is already joined; give the new instance another name", "; `c` cannot be expelled now")...)
		join.Name, join.RaftAddress = "d", k.address("c")
		_, err = k.server(n).Membership.Admit(t.Context(), &join)
		k.refused(err, append(way, "raft address c:7071 is that of instance `c`", "; `c` cannot be expelled now")...)
		join.Name, join.RaftAddress = "a", "elsewhere:7071"
		if _, err = k.server(n).Membership.Admit(t.Context(), &join); err == nil || strings.Contains(err.Error(), "majority") {
			t.Errorf("one with the name of an instance that runs is told %v", err)
		}
	}
	k.must("c", "a")
	k.eventually("all to be well again", func() bool { return k.healthOf("a").State != protocol.HealthBroken })
}

// waitFor is why something in a plan waits.
func waitFor(p *protocol.ClusterPlan, what string) string {
	for _, w := range p.Waits {
		if w.What == what {
			return w.Why
		}
	}
	return ""
}

// scrape is what a server shows at /metrics of its own.
func scrape(s *instance) string {
	var text strings.Builder
	s.Metrics.WritePrometheus(&text)
	return text.String()
}

// TestHealthOfFailureDomains: an instance that says at its restart that it is where another one of
// its replicaset is makes the cluster degraded, although all are there: the loss of that place
// would stop what any one instance may be lost of.
func TestHealthOfFailureDomains(t *testing.T) {
	form.SkipUntil(t, form.Full, "instances start again; TestHealthOfACluster has one that dies")
	t.Parallel()
	k := newClusterKit(t, 3)
	dc := map[string]string{"a": "1", "b": "2", "c": "3"}
	k.change = func(name string, c *server.Config) { c.FailureDomain = map[string]string{"DC": dc[name]} }
	k.startAll("a", "b", "c")
	healthy := func() bool {
		h := k.healthOf("a")
		return h.State == protocol.HealthHealthy && strings.Join(h.Domains, " ") == "DC=1 DC=2 DC=3" && len(h.NextLoss) == 0
	}
	k.eventually("the cluster to be healthy", healthy)

	k.kill("c")
	dc["c"] = "2"
	k.must("c")
	var h protocol.ClusterHealth
	for _, n := range k.names() {
		k.eventually(n+" to see two of three in DC=2", func() bool {
			h = k.healthOf(n)
			return h.State == protocol.HealthDegraded && len(h.Problems) == 1 && len(h.Unreachable) == 0 &&
				len(h.NextLoss) == 1 && h.Replicasets[0].Copies == 3 && len(h.NextLoss[0].Shards) == len(h.Shards)
		})
		if l := h.NextLoss[0]; l.Domain != "DC=2" || strings.Join(l.Instances, " ") != "b c" || !l.Meta ||
			!strings.Contains(h.Problems[0], "would not survive the loss of failure domain DC=2: it has 2 of 3 voters") ||
			!strings.HasPrefix(h.Losses[0], "the loss of failure domain DC=2 (2 instances) would stop the meta shard and shard") {
			t.Errorf("%s says %+v", n, h)
		}
	}
	for i := range h.Shards {
		if g := &h.Shards[i]; !g.AtRisk() || g.FaultTolerance != g.ConfiguredTolerance {
			t.Errorf("a shard is shown as %+v", g)
		}
	}
	var plan protocol.ClusterPlan
	k.eventually("the plan to say what is left to an operator", func() bool {
		if err := connect(t, k.server("b")).ask(protocol.MethodPlan, "", &plan); err != nil {
			t.Fatal(err)
		}
		return len(plan.Steps) == 0 && len(plan.Waits) == 1 && plan.Waits[0].Kind == protocol.WaitExternal
	})
	if w := plan.Waits[0]; w.What != "replicaset default_1 to survive the loss of DC=2" ||
		!strings.Contains(w.Why, "(b, c); start an instance outside DC=2") ||
		plan.Health.State != protocol.HealthDegraded {
		t.Errorf("the plan is %+v", plan)
	}
	if text := scrape(k.server("a")); strings.Contains(text, "signalbox_raft_groups_at_risk 0\n") {
		t.Errorf("metrics do not show that groups are at risk:\n%s", text)
	}

	k.kill("c")
	dc["c"] = "3"
	k.must("c")
	k.eventually("the cluster to be healthy again", healthy)
}
