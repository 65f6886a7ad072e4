package meta

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

func bytesOf(t *testing.T, m *Machine) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := m.BeginSnapshot().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestRestoredCluster: a bootstrap takes over the nodes, rights and trusts of another cluster's map,
// and nothing that belongs to its machines.
func TestRestoredCluster(t *testing.T) {
	for id, tiers := range [][]TierSpec{nil, {{Name: "arbiter", CanVote: true}}} {
		t.Run(fmt.Sprintf("tier %d", id), func(t *testing.T) { testRestoredCluster(t, uint8(id), tiers) })
	}
}

func testRestoredCluster(t *testing.T, tier uint8, others []TierSpec) {
	config := protocol.DefaultNodeConfig()
	config.MaxRequests = 7
	boot := func() *Bootstrap {
		return &Bootstrap{
			Cluster: "old", Instance: 3, Name: "old1", Tier: "default", TierID: tier, Tiers: others, CanVote: true,
			Buckets: 8, Shards: []uint64{2, 3}, NodeConfig: config, Wall: 1,
			Version: Version{Minor: 3},
		}
	}
	old := New()
	index := uint64(0)
	apply := func(m *Machine, c Command) Result {
		index++
		res, err := DecodeResult(m.Apply(index, AppendCommand(nil, OpID{}, c)))
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	must := func(m *Machine, c Command) Result {
		t.Helper()
		res := apply(m, c)
		if res.Status != protocol.StatusOK {
			t.Fatalf("%T: %v", c, res.Err())
		}
		return res
	}
	must(old, boot())
	made := must(old, &NodeCreate{Path: "/a", Tier: tier, Config: config})
	must(old, &NodeCommit{Nodes: []NodeRef{{Node: made.Node, Revision: made.Version}}})
	must(old, &RightsPut{Right: Right{Prefix: "/a", Identity: "somebody", Rights: 1}})
	must(old, &AuthSet{On: true, Token: Token{ID: "t", Identity: "root", Hash: [HashLen]byte{1}}})
	must(old, &TrustPut{Trust{Name: "ci", Issuer: "https://ci", Audience: "signalbox", Keys: []byte("{}")}})
	snapshot := bytesOf(t, old)

	fresh := func(change func(c *Bootstrap)) *Bootstrap {
		c := boot()
		c.Cluster, c.Instance, c.Name, c.Shards, c.Restored, c.RestoredEpoch, c.RestoredBackup =
			"new", 1, "new1", nil, snapshot, FirstEpoch+1, 7
		if change != nil {
			change(c)
		}
		return c
	}
	m := New()
	must(m, fresh(nil))
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
	if n, ok := m.NodeAt("/a"); !ok || n.ID != made.Node || n.Phase != Ready {
		t.Errorf("the node is %+v", n)
	}
	if n, ok := m.NodeAt(DefaultPath); !ok || n.Phase != Creating { // as it was
		t.Errorf("the default node is %+v", n)
	}
	if rights, _ := m.RightsList(); len(rights) != 2 {
		t.Errorf("rights are %+v", rights)
	}
	if tokens, revision := m.Tokens(); len(tokens) != 1 || !m.AuthOn() || revision != m.Revision() {
		t.Errorf("auth is on: %t, tokens are %+v, of revision %d", m.AuthOn(), tokens, revision)
	}
	if x, _ := m.Trust("ci"); len(m.Trusts()) != 1 || !reflect.DeepEqual(x, old.Trusts()[0]) {
		t.Errorf("trusts are %+v", m.Trusts())
	}
	if m.Revision() <= old.Revision() || m.MapVersion() <= old.MapVersion() ||
		m.Cluster() != "new" || len(m.Shards()) != 0 {
		t.Errorf("revision %d, map %d, cluster %s, %d shards", m.Revision(),
			m.MapVersion(), m.Cluster(), len(m.Shards()))
	}
	if mark := m.Tiers()[tier].Restore; mark.Epoch != FirstEpoch+1 || mark.Backup != 7 {
		t.Errorf("the mark is %+v", mark)
	}
	if m.ClientCluster() != "new" {
		t.Errorf("clients know it as %q", m.ClientCluster())
	}
	kept := New()
	must(kept, fresh(func(c *Bootstrap) { c.KeepClients = true }))
	if kept.ClientCluster() != "old" || kept.Cluster() != "new" {
		t.Errorf("clients know %q as %q", kept.Cluster(), kept.ClientCluster())
	}
	if back, err := Restore(bytes.NewReader(bytesOf(t, kept))); err != nil || back.ClientCluster() != "old" || len(back.Trusts()) != 1 {
		t.Errorf("its own snapshot: %v", err)
	}
	if again := must(m, &NodeCreate{Path: "/b", Tier: tier, Config: config}); again.Node <= made.Node+restoredAhead ||
		m.Revision() <= old.Revision()+restoredAhead {
		t.Errorf("node id %d after %d", again.Node, made.Node)
	}
	if back, err := Restore(bytes.NewReader(bytesOf(t, m))); err != nil || back.Digest() != m.Digest() {
		t.Errorf("its own snapshot: %v", err)
	}

	for want, change := range map[string]func(c *Bootstrap){
		"names its backup":                func(c *Bootstrap) { c.RestoredBackup = 0 },
		"gets its shards afterwards":      func(c *Bootstrap) { c.Shards = []uint64{2} },
		"begin with replication factor 1": func(c *Bootstrap) { c.ReplicationFactor = 3 },
		"are kept with a map to restore": func(c *Bootstrap) {
			c.Restored, c.RestoredBackup, c.Shards, c.KeepClients = nil, 0, []uint64{1}, true
		},
		"give it an id of its own":            func(c *Bootstrap) { c.Cluster = "old" },
		"bucket epoch 1 is not above":         func(c *Bootstrap) { c.RestoredEpoch = FirstEpoch },
		"no snapshot of a meta shard":         func(c *Bootstrap) { c.Restored = []byte("not a snapshot at all") },
		"take another backup":                 func(c *Bootstrap) { c.Restored = bytesOf(t, New()) },
		"is not one; take another backup":     func(c *Bootstrap) { c.Restored = append(bytes.Clone(snapshot), 0) },
		"the cluster that is to be restored:": func(c *Bootstrap) { c.Restored = snapshot[:len(snapshot)-1] },
	} {
		x := New()
		if res := apply(x, fresh(change)); !errors.Is(res.Err(), protocol.StatusBadRequest) ||
			!strings.Contains(res.Message, want) || x.Bootstrapped() {
			t.Errorf("want %q, got %v", want, res.Err())
		}
	}
}

// TestTiersToBeRestored: a cluster that is made from the map of one with data in two tiers has each
// of them restored by itself. Until then nothing changes that the restore goes by.
func TestTiersToBeRestored(t *testing.T) {
	const first, second, backup = 1, 2, 99
	config := protocol.DefaultNodeConfig()
	index := uint64(0)
	apply := func(m *Machine, c Command) Result {
		index++
		res, err := DecodeResult(m.Apply(index, AppendCommand(nil, OpID{}, c)))
		if err == nil {
			err = m.Check()
		}
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	must := func(m *Machine, list ...Command) {
		t.Helper()
		for _, c := range list {
			if res := apply(m, c); res.Status != protocol.StatusOK {
				t.Fatalf("%T: %v", c, res.Err())
			}
		}
	}
	boot := func(cluster string) *Bootstrap { // by the arbiter, which has the id 0
		return &Bootstrap{
			Cluster: cluster, Instance: 1, UUID: "a", Name: "a", RaftAddress: "a", Tier: "arbiter", CanVote: true,
			NodeConfig: config, Wall: 5,
			Tiers: []TierSpec{{Name: "first", Buckets: 8, ShardsPerReplicaset: 2}, {Name: "second", Buckets: 4, ShardsPerReplicaset: 1},
				{Name: "empty", Buckets: 2, ShardsPerReplicaset: 1}},
		}
	}
	data := func(m *Machine) { // instances with shards of both tiers
		must(m, &Join{UUID: "b", RaftAddress: "b", Tier: "first"}, &Join{UUID: "c", RaftAddress: "c", Tier: "second"},
			&ReplicasetIsReady{2}, &ReplicasetIsReady{3}, &ShardsCreate{2, 2}, &ShardsCreate{3, 3})
	}
	old := New()
	must(old, boot("old"))
	data(old)
	must(old, &BucketsAssign{first}, &BucketsAssign{second}, &NodeCreate{Path: "/b", Tier: second, Config: config})
	made, _ := old.NodeAt("/b")
	must(old, &NodeCommit{Nodes: []NodeRef{{made.ID, 1}}})
	snapshot := bytesOf(t, old)

	fresh := func() *Bootstrap {
		c := boot("new")
		c.Restored, c.RestoredEpoch, c.RestoredBackup = snapshot, FirstEpoch+6, backup
		return c
	}
	m := New()
	must(m, fresh())
	for _, x := range m.Tiers() {
		want := RestoreMark{}
		if x.ID == first || x.ID == second {
			want = RestoreMark{Backup: backup, Epoch: FirstEpoch + 6, Wall: 5}
		}
		if x.Restore != want || x.Bootstrapped {
			t.Errorf("tier %+v", x)
		}
	}
	data(m)
	for want, c := range map[string]Command{
		"tier first is to be restored from a backup; restore it first":  &BucketsAssign{first},
		"tier second is to be restored":                                 &NodeDrop{Path: "/b", Node: made.ID},
		"tier second is to be restored from a backup":                   &TierShards{second, 2},
		"tier first is to be restored from a backup":                    &TierReplicationFactor{first, 3, 1},
		"the backup with digest 0000000000000063, not 0000000000000064": &TierRestored{first, backup + 1, []uint64{1, 2}, 0},
		"shard 3 of tier first is gone":                                 &TierRestored{first, backup, []uint64{1, 3}, 0},
		"tier empty is not to be restored":                              &TierRestored{3, backup, []uint64{1}, 0},
		"name each once, in order":                                      &TierRestored{first, backup, []uint64{2, 1}, 0},
		"there is no tier 9":                                            &TierRestored{9, backup, []uint64{1}, 0},
	} {
		if res := apply(m, c); res.Status == protocol.StatusOK || !strings.Contains(res.Message, want) {
			t.Errorf("%#v: want %q, got %v", c, want, res.Err())
		}
	}
	if back, err := Restore(bytes.NewReader(bytesOf(t, m))); err != nil || back.Digest() != m.Digest() {
		t.Errorf("its own snapshot: %v", err)
	}
	before := m.State
	must(m, &TierRestored{first, backup, []uint64{1, 2}, 0})
	if events := Audit(&before, &m.State, index); len(events) != 1 || events[0] != (AuditEvent{Title: "restore_tier",
		Severity: SeverityHigh, Message: "tier `first` was restored from the backup with digest 0000000000000063",
		Tier: "first", Backup: backup, Index: index, Count: 1}) {
		t.Errorf("the audit log has %+v", events)
	}
	if x, _ := m.Tier(first); x.ToBeRestored() || !x.Bootstrapped || len(x.Runs) != 2 || x.Runs[1] != (Run{4, 4, 2, FirstEpoch + 6}) {
		t.Errorf("the restored tier is %+v", x)
	}
	if x, _ := m.Tier(second); !x.ToBeRestored() || x.Bootstrapped {
		t.Errorf("the second tier is %+v", x)
	}
	must(m, &ShardReady{Shard: 1}, &TierShards{first, 3}, &TierRestored{second, backup, []uint64{3}, 0}, &NodeDrop{Path: "/b", Node: made.ID})
	if res := apply(m, &TierRestored{second, backup, []uint64{3}, 0}); res.Status != protocol.StatusPreconditionFailed {
		t.Errorf("restored twice: %v", res.Err())
	}

	half := New()
	must(half, fresh())
	for want, change := range map[string]func(c *Bootstrap){
		"tier second of the cluster that is to be restored has the id 2 and 4 buckets": func(c *Bootstrap) { c.Tiers[1].Buckets = 8 },
		"has the id 3 and 2 buckets":      func(c *Bootstrap) { c.Tiers = c.Tiers[:2] },
		"begin with replication factor 1": func(c *Bootstrap) { c.Tiers[0].ReplicationFactor = 3 },
		"bucket epoch 1 is not above":     func(c *Bootstrap) { c.RestoredEpoch = FirstEpoch },
		"gets its shards afterwards":      func(c *Bootstrap) { c.Shards, c.Buckets = []uint64{1}, 8 },
		"is restored from a map":          func(c *Bootstrap) { c.Restored = nil },
		"tier first of the cluster that is to be restored was still to be restored itself": func(c *Bootstrap) {
			c.Cluster, c.Restored = "newer", bytesOf(t, half)
		},
		"there is nothing to restore": func(c *Bootstrap) {
			x := New()
			must(x, boot("empty"))
			c.Restored = bytesOf(t, x)
		},
	} {
		c, x := fresh(), New()
		change(c)
		if res := apply(x, c); !errors.Is(res.Err(), protocol.StatusBadRequest) ||
			!strings.Contains(res.Message, want) || x.Bootstrapped() {
			t.Errorf("want %q, got %v", want, res.Err())
		}
	}
}
