package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// ask asks an operators' method over the wire.
func (c *raw) ask(method, in string, out any) error {
	c.t.Helper()
	var reply protocol.ClusterReply
	if err := c.call(protocol.KindCluster, 0, &protocol.Cluster{Method: method, Body: []byte(in)}, &reply); err != nil {
		return err
	}
	if out != nil {
		if err := json.Unmarshal(reply.Body, out); err != nil {
			c.t.Fatal(err)
		}
	}
	return nil
}

// TestClusterMethods: one instance answers operators, and refuses what would break it.
func TestClusterMethods(t *testing.T) {
	s := start(t, func(c *Config) { c.Name = "one" })
	c := connect(t, s)
	var status protocol.ClusterStatus
	if err := c.ask(protocol.MethodStatus, "", &status); err != nil {
		t.Fatal(err)
	}
	i := status.Instances[0]
	if len(status.Instances) != 1 || i.Name != "one" || i.Address != s.Addr() || i.Current != "Online" || !i.AtTarget() || i.Reachable == nil || !*i.Reachable || len(i.Leads) != 2 {
		t.Errorf("instances are %+v", status.Instances)
	}
	if status.ID == "" || status.AnsweredBy != "one" || status.Meta.Leader != "one" || !reflect.DeepEqual(status.Meta.Voters, []string{"one"}) {
		t.Errorf("status is %+v", status)
	}
	if x := status.Shards; len(x) != 2 || x[0].Buckets+x[1].Buckets != 16 || x[0].Master != "one" || x[0].TargetMaster != "one" || !x[0].Ready {
		t.Errorf("shards are %+v", x)
	}
	if r := status.Replicasets; len(r) != 1 || r[0].Buckets != 16 || r[0].Weight != 1 || r[0].Phase != "ready" || r[0].Tier != "default" {
		t.Errorf("replicasets are %+v", r)
	}
	eventually(t, "the governor to have nothing to do", func() bool {
		var plan protocol.ClusterPlan
		return c.ask(protocol.MethodPlan, "{}", &plan) == nil && plan.Leader == "one" && len(plan.Steps)+len(plan.Waits) == 0
	})

	set := status.Replicasets[0].Name
	var weighed protocol.ClusterReplicaset
	if err := c.ask(protocol.MethodWeight, `{"replicaset":"`+set+`","weight":0.25,"newer":[]}`, &weighed); err != nil || weighed.Weight != 0.25 || !weighed.WeightByUser {
		t.Errorf("weight: %+v, %v", weighed, err)
	}
	var tier protocol.ClusterTier
	if err := c.ask(protocol.MethodReplicationFactor, `{"tier":"default","factor":3}`, &tier); err != nil || tier.ReplicationFactor != 3 {
		t.Errorf("replication factor: %+v, %v", tier, err)
	}
	before, _ := s.meta.State().Keys()
	var key protocol.TicketKey
	if err := c.ask(protocol.MethodRotateKeys, "", &key); err != nil || key.ID != before.ID {
		t.Errorf("key %+v, want %d: %v", key, before.ID, err)
	}
	for range 2 { // the second time it is the same request, sent again
		if err := c.ask(protocol.MethodRotateKeys, fmt.Sprintf(`{"current":%d}`, before.ID), &key); err != nil || key.ID != before.ID+1 {
			t.Errorf("key %+v after %d: %v", key, before.ID, err)
		}
	}
	var led protocol.ClusterShard
	if err := c.ask(protocol.MethodTransfer, `{"shard":2,"instance":"one"}`, &led); err != nil || led.ID != 2 || led.Master != "one" || led.TargetMaster != "one" || led.Revision == 0 {
		t.Errorf("transfer to who leads: %+v, %v", led, err)
	}
	var drained protocol.ClusterInstance
	if err := c.ask(protocol.MethodDrain, `{"instance":"one","undo":true}`, &drained); err != nil || drained.Draining || drained.ID != 1 {
		t.Errorf("drain undone: %+v, %v", drained, err)
	}
	for _, x := range []struct {
		method, in string
		want       protocol.Status
		part       string // of the message
	}{
		{"frobnicate", "{}", protocol.StatusUnsupported, "frobnicate"},
		{"No!", "{}", protocol.StatusBadRequest, "method"},
		{protocol.MethodExpel, `{"instance":"one"}`, protocol.StatusPreconditionFailed, "the only one"},
		{protocol.MethodExpel, `{"instance":"one","force":true}`, protocol.StatusPreconditionFailed, "the only one"},
		{protocol.MethodExpel, `{"instance":"nobody"}`, protocol.StatusNotFound, "nobody"},
		{protocol.MethodExpel, ``, protocol.StatusNotFound, ""},
		{protocol.MethodExpel, `[1]`, protocol.StatusBadRequest, "JSON"},
		{protocol.MethodExpel, `{"instance":`, protocol.StatusBadRequest, "JSON"},
		{protocol.MethodExpel, `{} {}`, protocol.StatusBadRequest, "JSON"},
		{protocol.MethodExpel, strings.Repeat("[", 100_000), protocol.StatusBadRequest, "JSON"},
		{protocol.MethodDrain, `{"instance":"one"}`, protocol.StatusPreconditionFailed, "start one"},
		{protocol.MethodTransfer, `{"shard":99,"instance":"one"}`, protocol.StatusNotFound, "shard 99"},
		{protocol.MethodWeight, `{"replicaset":"` + set + `","weight":0}`, protocol.StatusPreconditionFailed, "nowhere to go"},
		{protocol.MethodWeight, `{"replicaset":"` + set + `","weight":-1}`, protocol.StatusBadRequest, "weight is -1"},
		{protocol.MethodWeight, `{"replicaset":"` + set + `","weight":1e300}`, protocol.StatusBadRequest, "weight is 1e+300"},
		{protocol.MethodWeight, `{"replicaset":"?","weight":1}`, protocol.StatusNotFound, "replicaset"},
		{protocol.MethodReplicationFactor, `{"tier":"default","factor":0}`, protocol.StatusBadRequest, "factor is 0"},
		{protocol.MethodReplicationFactor, `{"tier":"cold","factor":1}`, protocol.StatusNotFound, "cold"},
	} {
		if err := c.ask(x.method, x.in, nil); protocol.StatusOf(err) != x.want || !strings.Contains(err.Error(), x.part) {
			t.Errorf("%s %.80s was answered %v", x.method, x.in, err)
		}
	}
	c.ping()
}

// TestClusterRights: who may read may ask; who may not administer changes nothing.
func TestClusterRights(t *testing.T) {
	s := start(t, func(c *Config) { c.Authorizer = readersOnly{} })
	c := connect(t, s)
	for _, method := range []string{protocol.MethodStatus, protocol.MethodPlan, protocol.MethodHealth} {
		if err := c.ask(method, "", nil); errors.Is(err, protocol.StatusForbidden) {
			t.Errorf("%s: %v", method, err)
		}
	}
	for _, method := range []string{protocol.MethodDrain, protocol.MethodExpel, protocol.MethodTransfer, protocol.MethodWeight, protocol.MethodReplicationFactor, protocol.MethodRotateKeys, "frobnicate"} {
		if err := c.ask(method, "", nil); !errors.Is(err, protocol.StatusForbidden) {
			t.Errorf("%s by who may only read: %v", method, err)
		}
	}
}

type readersOnly struct{}

func (readersOnly) Allowed(_ string, right Right, path string) bool {
	return right == RightRead && path == "/"
}

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
		return &meta.Join{UUID: "uuid-" + name, Name: name, Address: name + ":7070", RaftAddress: name + ":7071", Domain: domain(dc), Version: meta.Version{Minor: 3}, Wall: 2000}
	}
	return clusterOf(t,
		&meta.Bootstrap{Cluster: "c-1", ClusterName: "demo", Instance: 1, UUID: "uuid-a", Name: "a", Address: "a:7070", RaftAddress: "a:7071", Domain: domain("msk"),
			Version: meta.Version{Minor: 3}, Tier: "default", Buckets: 16, ReplicationFactor: 3, CanVote: true, Shards: []uint64{2, 3},
			NodeConfig: protocol.DefaultNodeConfig(), Wall: 1000},
		join("b", "spb"), join("c", "arb"),
		&meta.InstanceUpdate{Instance: 2, Target: meta.Online, Reason: meta.ReasonJoin, Wall: 3000},
		&meta.InstanceDrain{Instance: 1, Drained: true},
		&meta.ReplicaAdd{Shard: 2, Instance: 2, TargetRole: meta.RoleVoter},
	)
}

// TestClusterStatus: what is not yet what it is to be shows, and who is not heard.
func TestClusterStatus(t *testing.T) {
	const now = time.Hour
	got := clusterStatus(governor.Observation{
		View: governor.View{State: threeInstances(t), Now: now, Health: map[uint64]governor.Health{1: {Heard: now}, 3: {Heard: now - time.Minute}}},
		Self: 2, Leader: 1, Confirmed: true,
	})
	if got.Name != "demo" || got.Version != "0.3.0" || got.AnsweredBy != "b" || got.Meta.Leader != "a" {
		t.Errorf("status is %+v", got)
	}
	a, b, c := got.Instances[0], got.Instances[1], got.Instances[2]
	if !a.Draining || !a.AtTarget() || *a.Reachable != true || a.Domain["DC"] != "MSK" || a.ChangedAt != 1000 {
		t.Errorf("a is %+v", a)
	}
	if b.AtTarget() || b.Current != "Offline" || b.Target != "Online" || b.TargetIncarnation != 1 || b.Reason != "join" || !*b.Reachable || b.Replicaset != a.Replicaset {
		t.Errorf("b is %+v", b)
	}
	if !c.AtTarget() || c.Target != "Offline" || *c.Reachable {
		t.Errorf("c is %+v", c)
	}
	want := []protocol.ClusterReplica{{Instance: "a", Replica: 1, Role: "voter", TargetRole: "voter"}, {Instance: "b", Replica: 2, Role: "none", TargetRole: "voter"}}
	if x := got.Shards[0]; x.ID != 2 || !reflect.DeepEqual(x.Replicas, want) || x.Ready {
		t.Errorf("shard 2 is %+v, want replicas %+v", x, want)
	}
	if got.Replicasets[0].Phase != "not ready" || got.Tiers[0].Bootstrapped {
		t.Errorf("replicaset %+v, tier %+v", got.Replicasets[0], got.Tiers[0])
	}
	// An empty list is a list, for those who read the document with less forgiving tools.
	text, err := json.Marshal(clusterStatus(governor.Observation{View: governor.View{State: &meta.State{}}}))
	if err != nil || strings.Contains(string(text), "null") {
		t.Errorf("an empty cluster is %s, %v", text, err)
	}
}

// fakeTopology answers as the governor of an instance does that governs, or does not.
type fakeTopology struct {
	clusterChanger
	state   *meta.State
	governs bool
}

func (f *fakeTopology) State() *meta.State { return f.state }
func (f *fakeTopology) Explain() (governor.Explanation, error) {
	if !f.governs {
		return governor.Explanation{}, protocol.Errorf(protocol.StatusUnavailable, "this instance does not lead the meta shard; ask the one that does")
	}
	return governor.Explanation{Next: []string{"promote b"}, Waits: []governor.Wait{{What: "c to come online", Why: "nobody has heard of it", Kind: governor.Outside}}}, nil
}

// TestPlanIsTheLeaders: the plan is asked of the instance that governs. While there is none, or it does not answer, there are
// no steps, and the reason is one of them that a person understands.
func TestPlanIsTheLeaders(t *testing.T) {
	topology := &fakeTopology{state: threeInstances(t)}
	look := governor.Observation{View: governor.View{State: topology.state, Health: map[uint64]governor.Health{}}, Self: 2, Leader: 1, Confirmed: true}
	var refused error
	d := &clusterMethods{
		self: 2, clusterChanger: topology, observe: func(context.Context) governor.Observation { return look },
		askGovernor: func(ctx context.Context) ([]byte, error) {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("the one that governs is asked for as long as it likes")
			}
			return []byte(`{"asked_of":"a"}`), refused
		},
	}
	ask := func() (p protocol.ClusterPlan) {
		body, err := d.serve(t.Context(), protocol.MethodPlan, nil)
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
	look.Health = map[uint64]governor.Health{1: {Shards: map[uint64]governor.ShardHealth{meta.MetaShardID: {Replica: 1}}}}
	says(ask(), "a, which leads the meta shard, does not tell its plan")
	look.Confirmed = false
	says(ask(), "an election may be under way")
	look.Health = map[uint64]governor.Health{}
	says(ask(), "the meta shard has no majority: 0 of 1 voters take part; start a again")
	topology.governs = true
	look.Leader = 2
	if p := ask(); p.Leader != "b" || !reflect.DeepEqual(p.Steps, []string{"promote b"}) || !reflect.DeepEqual(p.Waits,
		[]protocol.ClusterWait{{What: "c to come online", Why: "nobody has heard of it", Kind: "outside"}}) {
		t.Errorf("answered %+v", p)
	}
}

// TestExpelAgain: to expel who was expelled is no error, while nobody else has the name.
func TestExpelAgain(t *testing.T) {
	expelled := threeInstances(t)
	gone := clusterOf(t,
		&meta.Bootstrap{Cluster: "c-1", Instance: 1, UUID: "uuid-a", Name: "a", Address: "a:7070", RaftAddress: "a:7071", Tier: "default", Buckets: 16, ReplicationFactor: 1, CanVote: true,
			Shards: []uint64{2}, NodeConfig: protocol.DefaultNodeConfig()},
		&meta.Join{UUID: "uuid-b", Name: "b", Replicaset: "default_1", Address: "b:7070", RaftAddress: "b:7071"},
		&meta.InstanceUpdate{Instance: 2, Target: meta.Expelled, Reason: meta.ReasonExpel},
		&meta.InstanceCurrent{Instance: 2, State: meta.InstanceState{Variant: meta.Expelled}},
	)
	d := &clusterMethods{self: 1, clusterChanger: &fakeTopology{state: gone}}
	body, err := d.serve(t.Context(), protocol.MethodExpel, []byte(`{"instance":"b"}`))
	var i protocol.ClusterInstance
	if err != nil || json.Unmarshal(body, &i) != nil || i.Name != "b" || i.Current != "Expelled" {
		t.Errorf("answered %s, %v", body, err)
	}
	d.clusterChanger = &fakeTopology{state: expelled}
	if _, err := d.serve(t.Context(), protocol.MethodExpel, []byte(`{"instance":"d"}`)); !errors.Is(err, protocol.StatusNotFound) {
		t.Errorf("who never was: %v", err)
	}
}
