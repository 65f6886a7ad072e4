package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/signalbox-dev/signalbox/protocol"
)

// TestStatusOfACluster: what is not yet what it is to be is marked, expelled instances are not
// shown, and names of others cannot reach the terminal.
func TestStatusOfACluster(t *testing.T) {
	yes, no := true, false
	online := func(i protocol.ClusterInstance) protocol.ClusterInstance {
		i.Tier, i.Current, i.Target = "default", "Online", "Online"
		i.CurrentIncarnation, i.TargetIncarnation = 1, 1
		return i
	}
	a := online(protocol.ClusterInstance{Name: "a", Replicaset: "r1", Reachable: &yes, Leads: []uint64{2},
		Version: "0.3.0", Domain: map[string]string{"RACK": "1", "DC": "MSK"},
		Address: "a:7070", Reason: "join"})
	b := online(protocol.ClusterInstance{Name: "b", Replicaset: "r1", Reachable: &no, Address: "b:7070", Reason: "no heartbeat for 5.5s"})
	b.Target = "Offline"
	d := online(protocol.ClusterInstance{Name: "d", Replicaset: "r1", Reachable: &no, Address: "d:7070"})
	c := online(protocol.ClusterInstance{Name: "c\x1b[31m", Replicaset: "r1", Address: "c:7070", Draining: true})
	c.TargetIncarnation = 2
	gone := online(protocol.ClusterInstance{Name: "gone", Replicaset: "r1"})
	gone.Current, gone.Target = "Expelled", "Expelled"
	s := &protocol.ClusterStatus{
		ID: "c-1", Name: "demo", Version: "0.3.0", Meta: protocol.ClusterMeta{Voters: []string{"a", "b"}},
		Tiers: []protocol.ClusterTier{{Name: "default", Buckets: 4096, ReplicationFactor: 3, CanVote: true,
			Bootstrapped: true}, {Name: "arbiters", ReplicationFactor: 1},
			{Name: "cold", Buckets: 16, ReplicationFactor: 2, CanVote: true}},
		Replicasets: []protocol.ClusterReplicaset{{Name: "r1", Tier: "default", Phase: "ready", Weight: 1,
			Buckets: 4096}, {Name: "r0", Tier: "default", Phase: "expelled"}},
		Instances: []protocol.ClusterInstance{a, b, c, d, gone},
		Health: protocol.ClusterHealth{
			AnsweredBy: "a", State: protocol.HealthBroken, AgeMS: 61_000,
			Problems: []string{"shard 3 of replicaset r1 has no leader; 0 buckets are not served"},
			Shards: []protocol.ClusterGroup{{Shard: 2, Voters: 3, Reachable: 2, Majority: true, Leader: "a",
				ConfiguredTolerance: 1}, {Shard: 3, Voters: 3, Reachable: 3, Majority: true, FaultTolerance: 1,
				ConfiguredTolerance: 1},
				{Shard: 4, Voters: 3, Reachable: 1}, {Shard: 5, Voters: 3, Reachable: 3, Majority: true, Leader: "f", FaultTolerance: 1, ConfiguredTolerance: 1, UnsafeDomains: []string{"DC=MSK"}}},
			Replicasets: []protocol.ClusterReplicasetCopies{{Replicaset: "r1", Tier: "default", Copies: 2, Configured: 3, ForMS: 2000}},
			Unreachable: []protocol.ClusterUnreachable{{Instance: "b", State: "Online", ForMS: 2000},
				{Instance: "d", State: "Online"},
				{Instance: "e", State: "Offline", Reason: "shutdown", ForMS: 3.6e6}},
			Losses: []string{"the loss of a or c would stop shard 2"},
		},
		Shards: []protocol.ClusterShard{
			{ID: 2, Tier: "default", Replicaset: "r1", Master: "a", TargetMaster: "b", Buckets: 4096, Ready: true,
				Replicas: []protocol.ClusterReplica{
					{Instance: "a", Role: "voter", TargetRole: "voter"}, {Instance: "b", Role: "non-voting", TargetRole: "voter"},
					{Instance: "c", Role: "voter", TargetRole: "none"}, {Instance: "d", Role: "non-voting", TargetRole: "non-voting"}}},
			{ID: 3, Tier: "default", Replicaset: "r1", TargetMaster: "b"},
			{ID: 4, Tier: "default", Replicaset: "r1", Master: "b", TargetMaster: "b"},
			{ID: 5, Tier: "default", Replicaset: "r1", Master: "b", TargetMaster: "b"},
		},
		Moves: []protocol.ClusterMove{{Tier: "default", First: 32, Count: 32, From: 2, To: 3, Phase: "moving"},
			{Tier: "default", First: 4095, Count: 1, From: 2, To: 3, Phase: "committed"}},
	}
	var out strings.Builder
	if err := printStatus(&printer{w: &out, format: "table"}, s); err != nil {
		t.Fatal(err)
	}
	want := `broken, as a sees it; a majority confirmed its map of the cluster 1m1s ago for the last time
  shard 3 of replicaset r1 has no leader; 0 buckets are not served
  b was not heard for 2s
  d was never heard by the instance that answers
  e was not heard for 1h0m: shutdown
  the loss of a or c would stop shard 2

cluster demo (c-1), version 0.3.0
meta shard: without a leader; voters: a, b

tier default: replication factor 3, 4096 buckets

replicaset r1: ready, 2 of 3 copies for 2s, weight 1, 4096 buckets
INSTANCE   STATE                           HEARD  VOTES  LEADS  VERSION  FAILURE DOMAIN  ADDRESS  SINCE  REASON
a          Online                          yes    yes    1      0.3.0    DC=MSK,RACK=1   a:7070   -      join
b          Online? not heard for 2s        no     yes    0      -        -               b:7070   -      no heartbeat for 5.5s
c\x1b[31m  Online? started again, drained  ?      no     0      -        -               c:7070   -      -
d          Online? not heard               no     no     0      -        -               d:7070   -      -

SHARD  STATE                MASTER         REPLICAS                                            BUCKETS
2      2 of 3 voters        a? to be b     a, b (? to be voter), c (? leaves), d (non-voting)  4096
3      no leader            none? to be b                                                      0
4      no majority: 1 of 3  none, was b                                                        0
5      not without DC=MSK   b                                                                  0

tier arbiters: replication factor 1, 0 buckets, no votes

tier cold: replication factor 2, 16 buckets, waits for a replicaset to be ready

buckets that move
TIER     BUCKETS  FROM SHARD  TO SHARD  PHASE
default  32-63    2           3         moving
default  4095     2           3         committed
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

// TestHealthForPeople: what may be lost is said where nothing is wrong.
func TestHealthForPeople(t *testing.T) {
	for _, x := range []struct {
		health protocol.ClusterHealth
		want   string
	}{
		{protocol.ClusterHealth{State: protocol.HealthHealthy}, "any one instance may be lost"},
		{protocol.ClusterHealth{State: protocol.HealthHealthy, Domains: []string{"DC=1"}}, "any one instance, or any one failure domain, may be lost"},
		{protocol.ClusterHealth{State: protocol.HealthBroken, Domains: []string{"DC=1"}}, "the loss of one more instance would stop nothing else"},
		{protocol.ClusterHealth{State: protocol.HealthDegraded, Domains: []string{"DC=1"}, Losses: []string{"the loss of failure domain DC=1 (2 instances) would stop shard 2"}},
			"the loss of failure domain DC=1 (2 instances) would stop shard 2"},
	} {
		x.health.AnsweredBy, x.health.Confirmed = "a", true
		var out strings.Builder
		want := x.health.State + ", as a sees it\n  " + x.want + "\n"
		if err := printHealth(&printer{w: &out, format: "table"}, &x.health); err != nil || out.String() != want {
			t.Errorf("shows %q, %v, want %q", out.String(), err, want)
		}
	}
}

func TestPlanForPeople(t *testing.T) {
	for _, x := range []struct {
		plan protocol.ClusterPlan
		want string
	}{
		{protocol.ClusterPlan{}, "nothing to do\n"},
		{protocol.ClusterPlan{Steps: []string{"promote b"}, Waits: []protocol.ClusterWait{{What: "c to come online", Why: "nobody has heard of it", Kind: protocol.WaitExternal},
			{What: "d to come online", Why: "it catches up", Kind: protocol.WaitInProgress}}},
			"next\n  promote b\nunder way\n  d to come online\n    it catches up\nneeds an instance, or an operator\n  c to come online\n    nobody has heard of it\n"},
	} {
		var out strings.Builder
		if err := printPlan(&printer{w: &out, format: "table"}, &x.plan); err != nil || out.String() != x.want {
			t.Errorf("shows %q, %v, want %q", out.String(), err, x.want)
		}
	}
}
