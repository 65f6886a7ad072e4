package meta

import (
	"bytes"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestKindsOfANewerVersion: while the cluster has an older version, entries of kinds that it does
// not know have the effect that they have on members of that version, which is none. Their copies
// of the state and their answers are the same.
func TestKindsOfANewerVersion(t *testing.T) {
	cluster := func(v Version) *Machine {
		m := New()
		res, err := DecodeResult(m.Apply(1, AppendCommand(nil, OpID{1}, &Bootstrap{
			Cluster: "c", Instance: 1, UUID: "a", Name: "a", Tier: "default", Buckets: 8,
			ReplicationFactor: 1, ShardsPerReplicaset: 2, CanVote: true,
			Shards: []uint64{2, 3}, Version: v, NodeConfig: protocol.DefaultNodeConfig(),
		})))
		if err != nil || res.Status != protocol.StatusOK {
			t.Fatal(res, err)
		}
		return m
	}
	for kind, first := range since {
		entry := AppendCommand(nil, OpID{2}, newCommand[kind]())
		switch kind {
		case KindTierShards:
			entry = AppendCommand(nil, OpID{2}, &TierShards{Shards: 3})
		case KindTierReplicationFactorAt:
			entry = AppendCommand(nil, OpID{2}, &TierReplicationFactor{ReplicationFactor: 3, Wall: 1})
		}
		unknown := bytes.Clone(entry)
		unknown[1] = 0 // no kind
		older, mixed := cluster(Version{0, 1, 0}), cluster(Version{0, 1, 7})
		if a, b := older.Apply(2, unknown), mixed.Apply(2, entry); !bytes.Equal(a, b) {
			t.Errorf("kind %d is answered with %q where an older member answers %q", kind, b, a)
		}
		if again := cluster(Version{0, 1, 7}); mixed.Digest() != again.Digest() {
			t.Errorf("kind %d has changed the state", kind)
		}
		if err := mixed.CheckVersion(newCommand[kind]()); protocol.StatusOf(err) != protocol.StatusPreconditionFailed {
			t.Errorf("kind %d may be proposed: %v", kind, err)
		}
		upgraded := cluster(first)
		if err := upgraded.CheckVersion(newCommand[kind]()); err != nil {
			t.Errorf("kind %d may not be proposed: %v", kind, err)
		}
		if res, err := DecodeResult(upgraded.Apply(2, entry)); err != nil || res.Status == protocol.StatusBadRequest {
			t.Errorf("kind %d is answered with %v: %v", kind, res, err)
		}
	}
}
