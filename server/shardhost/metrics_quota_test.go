package shardhost

import (
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// mapsOfNode are the cluster's maps before a node was made, with it, and after it was dropped.
func mapsOfNode(t *testing.T) (before, with, after meta.State, node uint64) {
	t.Helper()
	m, index := meta.New(), uint64(0)
	do := func(c meta.Command) meta.NodeRef {
		t.Helper()
		index++
		res, err := meta.DecodeResult(m.Apply(index, meta.AppendCommand(nil, meta.OpID{}, c)))
		if err != nil || res.Status != protocol.StatusOK {
			t.Fatalf("%T: %+v, %v", c, res, err)
		}
		return meta.NodeRef{Node: res.Node, Revision: res.Version}
	}
	config := protocol.DefaultNodeConfig()
	do(&meta.Bootstrap{Cluster: "id", ClusterName: "name", Instance: 1, UUID: "u1", Name: "a", Address: "a:2", RaftAddress: "a:1",
		Version: meta.Version{Minor: 1}, Tier: "default", Buckets: 16, ReplicationFactor: 1, CanVote: true, Shards: []uint64{2},
		NodeConfig: config})
	before = m.State
	made := do(&meta.NodeCreate{Path: "/a", Config: config, Parent: config})
	do(&meta.NodeCommit{Nodes: []meta.NodeRef{made}})
	with = m.State
	dropped := do(&meta.NodeDrop{Path: "/a", Node: made.Node})
	do(&meta.NodeCommit{Nodes: []meta.NodeRef{dropped}})
	return before, with, m.State, made.Node
}

// TestRefusalsNeverGoBack: what was refused stays counted when its shard leaves the instance, and
// while the map here does not have the node yet. It is forgotten when the node was dropped.
func TestRefusalsNeverGoBack(t *testing.T) {
	before, with, after, node := mapsOfNode(t)
	m := metrics.New()
	s := NewServing(ServingConfig{Requests: request.New(request.Config{Metrics: m, Context: t.Context()}), Metrics: m})
	defer s.Close()
	leaves := s.newShard(2, 1)
	if err := leaves.hubs.Quota.Reserve(node, 0); err == nil {
		t.Fatal("a watcher over the quota was let in")
	}
	s.refusals.add(node, [quotaWatchers]uint64{shard.QuotaWaiters: 5}, [quotaWatchers]uint64{shard.QuotaWaiters: 3})
	for _, x := range []struct {
		when              string
		state             *meta.State
		waiters, watchers uint64
	}{
		{"the map lags", &before, 2, 1},
		{"the map has the node", &with, 2, 1},
		{"the node was dropped", &after, 0, 0},
		{"an older map", &with, 0, 0},
	} {
		uses, _ := s.quotaUses(nil, &request.Routes{State: x.state}, 10)
		var got [len(nodeQuotas)]quotaUse
		if u := uses[node]; u != nil {
			got = *u
		}
		if w, v := got[shard.QuotaWaiters].refused, got[quotaWatchers].refused; w != x.waiters || v != x.watchers {
			t.Errorf("%s: %d waiters and %d watchers were refused, want %d and %d", x.when, w, v, x.waiters, x.watchers)
		}
	}
}
