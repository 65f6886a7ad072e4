package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
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
	t.Parallel()
	s := start(t, func(c *server.Config) { c.Name = "one" })
	c := connect(t, s)
	var status protocol.ClusterStatus
	if err := c.ask(protocol.MethodStatus, "", &status); err != nil {
		t.Fatal(err)
	}
	i := status.Instances[0]
	if len(status.Instances) != 1 || i.Name != "one" || i.Address != s.Addr() || i.Current != "Online" ||
		!i.AtTarget() || i.Reachable == nil || !*i.Reachable || len(i.Leads) != 2 {
		t.Errorf("instances are %+v", status.Instances)
	}
	if status.ID == "" || status.AnsweredBy != "one" || status.Meta.Leader != "one" ||
		!reflect.DeepEqual(status.Meta.Voters, []string{"one"}) {
		t.Errorf("status is %+v", status)
	}
	if x := status.Shards; len(x) != 2 || x[0].Buckets+x[1].Buckets != 16 || x[0].Master != "one" ||
		x[0].TargetMaster != "one" || !x[0].Ready {
		t.Errorf("shards are %+v", x)
	}
	if r := status.Replicasets; len(r) != 1 || r[0].Buckets != 16 || r[0].Weight != 1 || r[0].Phase != "ready" || r[0].Tier != "default" {
		t.Errorf("replicasets are %+v", r)
	}
	await.True(t, "the governor to have nothing to do", func() bool {
		var plan protocol.ClusterPlan
		return c.ask(protocol.MethodPlan, "{}", &plan) == nil && plan.Leader == "one" && len(plan.Steps)+len(plan.Waits) == 0
	})

	set := status.Replicasets[0].Name
	var weighed protocol.ClusterReplicaset
	if err := c.ask(protocol.MethodWeight, `{"replicaset":"`+set+`","weight":0.25,"newer":[]}`,
		&weighed); err != nil || weighed.Weight != 0.25 || !weighed.WeightByUser {
		t.Errorf("weight: %+v, %v", weighed, err)
	}
	var tier protocol.ClusterTier
	if err := c.ask(protocol.MethodReplicationFactor, `{"tier":"default","factor":3}`, &tier); err != nil || tier.ReplicationFactor != 3 {
		t.Errorf("replication factor: %+v, %v", tier, err)
	}
	before, _ := s.Meta.State().Keys()
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
	if err := c.ask(protocol.MethodTransfer, `{"shard":2,"instance":"one"}`, &led); err != nil || led.ID != 2 ||
		led.Master != "one" || led.TargetMaster != "one" || led.Revision == 0 {
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
		{protocol.MethodExpel, `{"instance":"one","force":true,"reason":"test"}`, protocol.StatusPreconditionFailed, "the only one"},
		{protocol.MethodExpel, `{"instance":"one","force":true,"reason":" "}`, protocol.StatusBadRequest, "needs a reason"},
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
		{protocol.MethodReplicationFactor, `{"tier":"default","factor":2}`, protocol.StatusPreconditionFailed, "fewer copies"},
		{protocol.MethodReplicationFactor, `{"tier":"default","factor":2,"force":true}`, protocol.StatusBadRequest, "needs a reason"},
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
	t.Parallel()
	s := start(t, func(c *server.Config) { c.Authorizer = readersOnly{} })
	c := connect(t, s)
	for _, method := range []string{protocol.MethodStatus, protocol.MethodPlan, protocol.MethodHealth, protocol.MethodShards} {
		if err := c.ask(method, "", nil); errors.Is(err, protocol.StatusForbidden) {
			t.Errorf("%s: %v", method, err)
		}
	}
	for _, method := range []string{protocol.MethodDrain, protocol.MethodExpel, protocol.MethodTransfer,
		protocol.MethodWeight, protocol.MethodReplicationFactor, protocol.MethodSetShards, protocol.MethodRotateKeys, protocol.MethodUpgrade,
		"frobnicate"} {
		if err := c.ask(method, "", nil); !errors.Is(err, protocol.StatusForbidden) {
			t.Errorf("%s by who may only read: %v", method, err)
		}
	}
}

type readersOnly struct{}

func (readersOnly) Allowed(_ string, right auth.Right, path string) bool {
	return right == auth.RightRead && path == "/"
}
