package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// clusterOf is the state of a cluster after some commands.
func clusterOf(t *testing.T, commands ...meta.Command) *meta.State {
	t.Helper()
	m := meta.New()
	for i, c := range commands {
		res, err := meta.DecodeResult(m.Apply(uint64(i+1), meta.AppendCommand(nil, meta.OpID{}, c)))
		if err == nil {
			err = res.Err()
		}
		if err != nil {
			t.Fatalf("command %d: %v", i, err)
		}
	}
	return &m.State
}

func threeInstances(t *testing.T) *meta.State {
	domain := func(dc string) []meta.Label {
		d, err := meta.Domain(meta.Label{Key: "dc", Value: dc})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	join := func(name, dc string) *meta.Join {
		return &meta.Join{UUID: "uuid-" + name, Name: name, Address: name + ":7070", RaftAddress: name + ":7071",
			Domain: domain(dc), Version: meta.Version{Minor: 3}, Wall: 2000}
	}
	return clusterOf(t,
		&meta.Bootstrap{Cluster: "c-1", ClusterName: "demo", Instance: 1, UUID: "uuid-a", Name: "a",
			Address: "a:7070", RaftAddress: "a:7071", Domain: domain("msk"),
			Version: meta.Version{Minor: 3}, Tier: "default", Buckets: 16, ReplicationFactor: 3, CanVote: true, Shards: []uint64{2, 3},
			NodeConfig: protocol.DefaultNodeConfig(), Wall: 1000},
		join("b", "spb"), join("c", "arb"),
		&meta.InstanceUpdate{Instance: 2, Target: meta.Online, Reason: meta.ReasonJoin, Wall: 3000},
		&meta.InstanceDrain{Instance: 1, Drained: true},
		&meta.ReplicaAdd{Shard: 2, Instance: 2, TargetRole: meta.RoleVoter},
	)
}

// TestClusterStatus: the status shows what is not yet as wanted, and instances that are not heard.
func TestClusterStatus(t *testing.T) {
	const now = time.Hour
	got := Status(governor.Observation{
		View: governor.View{State: threeInstances(t), Now: now,
			Health: map[uint64]governor.Heartbeat{1: {Heard: now}, 3: {Heard: now - time.Minute}}},
		Self: 2, Leader: 1, Confirmed: true,
	})
	if got.Name != "demo" || got.Version != "0.3.0" || got.AnsweredBy != "b" || got.Meta.Leader != "a" {
		t.Errorf("status is %+v", got)
	}
	a, b, c := got.Instances[0], got.Instances[1], got.Instances[2]
	if !a.Draining || !a.AtTarget() || *a.Reachable != true || a.Domain["DC"] != "MSK" || a.ChangedAt != 1000 {
		t.Errorf("a is %+v", a)
	}
	if b.AtTarget() || b.Current != "Offline" || b.Target != "Online" || b.TargetIncarnation != 1 ||
		b.Reason != "join" || !*b.Reachable || b.Replicaset != a.Replicaset {
		t.Errorf("b is %+v", b)
	}
	if !c.AtTarget() || c.Target != "Offline" || *c.Reachable {
		t.Errorf("c is %+v", c)
	}
	want := []protocol.ClusterReplica{{Instance: "a", Replica: 1, Role: "voter", TargetRole: "voter"},
		{Instance: "b", Replica: 2, Role: "none", TargetRole: "voter"}}
	if x := got.Shards[0]; x.ID != 2 || !reflect.DeepEqual(x.Replicas, want) || x.Ready {
		t.Errorf("shard 2 is %+v, want replicas %+v", x, want)
	}
	if got.Replicasets[0].Phase != "not ready" || got.Tiers[0].Bootstrapped {
		t.Errorf("replicaset %+v, tier %+v", got.Replicasets[0], got.Tiers[0])
	}
	// An empty list is a list, for those who read the document with less forgiving tools.
	text, err := json.Marshal(Status(governor.Observation{View: governor.View{State: &meta.State{}}}))
	if err != nil || strings.Contains(string(text), "null") {
		t.Errorf("an empty cluster is %s, %v", text, err)
	}
}

// fakeTopology answers as the governor of an instance does that governs, or does not.
type fakeTopology struct {
	ClusterChanger
	state   *meta.State
	governs bool
}

func (f *fakeTopology) State() *meta.State { return f.state }
func (f *fakeTopology) Explain() (governor.Explanation, error) {
	if !f.governs {
		return governor.Explanation{}, protocol.Errorf(protocol.StatusUnavailable,
			"this instance does not lead the meta shard; ask the one that does")
	}
	return governor.Explanation{Next: []string{"promote b"}, Waits: []governor.Wait{{What: "c to come online",
		Why: "nobody has heard of it", Kind: governor.Outside}}}, nil
}

// TestPlanIsTheLeaders: the plan is asked of the instance that governs. While there is none, or it
// does not answer, there are no steps, and the reason is one of them that a person understands.
func TestPlanIsTheLeaders(t *testing.T) {
	topology := &fakeTopology{state: threeInstances(t)}
	look := governor.Observation{View: governor.View{State: topology.state, Health: map[uint64]governor.Heartbeat{}},
		Self: 2, Leader: 1, Confirmed: true}
	var refused error
	d := &ClusterMethods{
		Self: 2, ClusterChanger: topology, Observe: func(context.Context) governor.Observation { return look },
		AskGovernor: func(ctx context.Context) ([]byte, error) {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("the one that governs is asked for as long as it likes")
			}
			return []byte(`{"asked_of":"a"}`), refused
		},
	}
	ask := func() (p protocol.ClusterPlan) {
		body, err := d.Serve(t.Context(), protocol.MethodPlan, nil)
		if err == nil {
			err = json.Unmarshal(body, &p)
		}
		if err != nil {
			t.Error(err)
		}
		return p
	}
	if p := ask(); p.AnsweredBy != "a" {
		t.Errorf("answered %+v", p)
	}
	says := func(p protocol.ClusterPlan, why string) {
		t.Helper()
		if p.AnsweredBy != "b" || p.Leader != "" || len(p.Steps) != 0 || p.Health.AnsweredBy != "b" {
			t.Errorf("answered %+v", p)
		}
		for _, w := range p.Waits {
			if w.What == governor.WaitForGovernor && strings.Contains(w.Why, why) {
				return
			}
		}
		t.Errorf("%+v does not say %q", p.Waits, why)
	}
	refused = context.DeadlineExceeded
	topology.state = threeInstances(t)
	look.Health = map[uint64]governor.Heartbeat{1: {Shards: map[uint64]governor.ShardReport{meta.MetaShardID: {Replica: 1}}}}
	says(ask(), "a, which leads the meta shard, does not tell its plan")
	look.Confirmed = false
	says(ask(), "an election may be under way")
	look.Health = map[uint64]governor.Heartbeat{}
	says(ask(), "the meta shard has no majority: 0 of 1 voters up; start a again")
	topology.governs = true
	look.Leader = 2
	if p := ask(); p.Leader != "b" || !reflect.DeepEqual(p.Steps, []string{"promote b"}) || !reflect.DeepEqual(p.Waits,
		[]protocol.ClusterWait{{What: "c to come online", Why: "nobody has heard of it", Kind: "outside"}}) {
		t.Errorf("answered %+v", p)
	}
}

// TestShardsAreShown: what a tier has is shown, also where no number of shards can be chosen: in a
// tier that is to be restored, and in one without buckets.
func TestShardsAreShown(t *testing.T) {
	old := meta.New()
	b := meta.Bootstrap{Cluster: "c-1", Instance: 1, UUID: "uuid-a", Name: "a", Address: "a:7070", RaftAddress: "a:7071",
		Tier: "default", Buckets: 16, ReplicationFactor: 1, ShardsPerReplicaset: 3, CanVote: true, Shards: []uint64{2, 3, 4},
		Tiers: []meta.TierSpec{{Name: "arbiter", CanVote: true}}, NodeConfig: protocol.DefaultNodeConfig()}
	old.Apply(1, meta.AppendCommand(nil, meta.OpID{}, &b))
	var snapshot bytes.Buffer
	if _, err := old.BeginSnapshot().WriteTo(&snapshot); err != nil {
		t.Fatal(err)
	}
	b.Cluster, b.Shards, b.Restored, b.RestoredEpoch, b.RestoredBackup = "c-2", nil, snapshot.Bytes(), meta.FirstEpoch+1, 1
	state := clusterOf(t, &b)
	d := &ClusterMethods{Self: 1, ClusterChanger: &fakeTopology{state: state},
		Observe: func(context.Context) governor.Observation {
			return governor.Observation{View: governor.View{State: state}}
		}}
	for _, tier := range []string{"default", "arbiter"} {
		t.Run(tier, func(t *testing.T) {
			own, _ := state.TierByName(tier)
			body, err := d.Serve(t.Context(), protocol.MethodShards, []byte(`{"tier":"`+tier+`"}`))
			var x protocol.ClusterShards
			if err != nil || json.Unmarshal(body, &x) != nil || x.Tier != tier || x.ShardsPerReplicaset != own.ShardsPerReplicaset {
				t.Errorf("answered %s, %v", body, err)
			}
			_, err = d.Serve(t.Context(), protocol.MethodShards, []byte(`{"tier":"`+tier+`","shards":2}`))
			if !errors.Is(err, protocol.StatusPreconditionFailed) {
				t.Errorf("with a number: %v", err)
			}
		})
	}
}

// TestExpelAgain: expelling an expelled instance is no error, while no other one has the name. An
// instance that is cut off knows neither.
func TestExpelAgain(t *testing.T) {
	expelled := threeInstances(t)
	gone := clusterOf(t,
		&meta.Bootstrap{Cluster: "c-1", Instance: 1, UUID: "uuid-a", Name: "a", Address: "a:7070",
			RaftAddress: "a:7071", Tier: "default", Buckets: 16, ReplicationFactor: 1, CanVote: true,
			Shards: []uint64{2}, NodeConfig: protocol.DefaultNodeConfig()},
		&meta.Join{UUID: "uuid-b", Name: "b", Replicaset: "default_1", Address: "b:7070", RaftAddress: "b:7071"},
		&meta.InstanceUpdate{Instance: 2, Target: meta.Expelled, Reason: meta.ReasonExpel},
		&meta.InstanceCurrent{Instance: 2, State: meta.InstanceState{Variant: meta.Expelled}},
	)
	confirmed := true
	d := &ClusterMethods{Self: 1, ClusterChanger: &fakeTopology{state: gone},
		Observe: func(context.Context) governor.Observation { return governor.Observation{Confirmed: confirmed} }}
	body, err := d.Serve(t.Context(), protocol.MethodExpel, []byte(`{"instance":"b"}`))
	var i protocol.ClusterInstance
	if err != nil || json.Unmarshal(body, &i) != nil || i.Name != "b" || i.Current != "Expelled" {
		t.Errorf("answered %s, %v", body, err)
	}
	d.ClusterChanger = &fakeTopology{state: expelled}
	if _, err := d.Serve(t.Context(), protocol.MethodExpel, []byte(`{"instance":"d"}`)); !errors.Is(err, protocol.StatusNotFound) {
		t.Errorf("who never was: %v", err)
	}
	confirmed = false
	for name, state := range map[string]*meta.State{"d": expelled, "b": gone} {
		d.ClusterChanger = &fakeTopology{state: state}
		body, err := d.Serve(t.Context(), protocol.MethodExpel, []byte(`{"instance":"`+name+`"}`))
		if !errors.Is(err, protocol.StatusUnavailable) || !strings.Contains(err.Error(), "ask again") {
			t.Errorf("%s by a map that nobody confirmed: %s, %v", name, body, err)
		}
	}
}
