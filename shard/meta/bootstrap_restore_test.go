package meta

import (
	"bytes"
	"errors"
	"fmt"
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

// TestRestoredCluster: a bootstrap takes over the nodes and rights of another cluster's map, and
// nothing that belongs to its machines.
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
	snapshot := bytesOf(t, old)

	fresh := func(change func(c *Bootstrap)) *Bootstrap {
		c := boot()
		c.Cluster, c.Instance, c.Name, c.Shards, c.Restored, c.RestoredEpoch =
			"new", 1, "new1", []uint64{2, 3, 4}, snapshot, FirstEpoch+1
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
	if m.Revision() <= old.Revision() || m.MapVersion() <= old.MapVersion() ||
		m.Cluster() != "new" || len(m.Shards()) != 3 {
		t.Errorf("revision %d, map %d, cluster %s, %d shards", m.Revision(),
			m.MapVersion(), m.Cluster(), len(m.Shards()))
	}
	for _, run := range m.Tiers()[tier].Runs {
		if run.Epoch != FirstEpoch+1 {
			t.Errorf("run %+v", run)
		}
	}
	if again := must(m, &NodeCreate{Path: "/b", Tier: tier, Config: config}); again.Node <= made.Node+restoredAhead ||
		m.Revision() <= old.Revision()+restoredAhead {
		t.Errorf("node id %d after %d", again.Node, made.Node)
	}
	if back, err := Restore(bytes.NewReader(bytesOf(t, m))); err != nil || back.Digest() != m.Digest() {
		t.Errorf("its own snapshot: %v", err)
	}

	for want, change := range map[string]func(c *Bootstrap){
		"has other buckets than the 16":       func(c *Bootstrap) { c.Buckets = 16 },
		"has other buckets than the 8":        func(c *Bootstrap) { c.TierID, c.Tiers = 1-tier, []TierSpec{{Name: "arbiter"}} },
		"begin with replication factor 1":     func(c *Bootstrap) { c.ReplicationFactor = 3 },
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
