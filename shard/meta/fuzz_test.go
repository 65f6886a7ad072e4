package meta

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// examples has a command of every kind, with every field set.
func examples() []Command {
	config := protocol.NodeConfig{
		Fields: 127, SelfCheckPeriod: 500, GracePeriod: 5000, ReadConsistency: protocol.Strict,
		AttachConsistency: protocol.Relaxed,
		CountersMode:      protocol.CountersDetailed, MaxSessions: 7, MaxSemaphores: 1 << 63,
		MaxBytes: 1 << 40, MaxWaiters: 9, MaxWatchers: 10, MaxRequests: 11,
	}
	return []Command{
		&Bootstrap{
			Cluster: "c", ClusterName: "demo", Secret: [32]byte{1, 2}, Instance: 1,
			UUID: "u1", Name: "n", Address: "a:1", RaftAddress: "a:2",
			Domain: []Label{{"DC", "MSK"}}, Version: Version{1, 2, 3}, Tier: "default", Buckets: 4096,
			ReplicationFactor: 1, ShardsPerReplicaset: 3, CanVote: true,
			Tiers: []TierSpec{{Name: "arbiter", CanVote: true},
				{Name: "storage", Buckets: 16, ReplicationFactor: 2, ShardsPerReplicaset: 2, CanVote: true}},
			Shards: []uint64{2, 3, 300}, NodeConfig: config, Wall: 1e12,
		},
		&RotateKeys{Current: 1, Secret: [32]byte{31: 9}},
		&InstanceAddress{Instance: 1, Expected: 1, Address: "b:1", RaftAddress: "b:2"},
		&ShardReady{Shard: 300, Expected: 1},
		&NodeCreate{Path: "/a/b", Tier: 0, Config: config, SetFields: 3,
			Parent: protocol.DefaultNodeConfig(), Wall: 1e12},
		&NodeCommit{Nodes: []NodeRef{{1, 1}, {2, 1}, {3, 1}}},
		&NodeAlter{Path: "/a/b", Node: 3, Revision: 1, Config: protocol.DefaultNodeConfig(), SetFields: 1},
		&NodeCommit{Nodes: []NodeRef{{3, 2}}},
		&NodeAlter{Path: "/a/b", Node: 3, Revision: 2, Config: config, SetFields: 1},
		&NodeCommit{Nodes: []NodeRef{{3, 3}}},
		&GraceFloorClear{NodeRef{3, 3}},
		&NodeDrop{Path: "/a/b", Node: 3},
		&RightsPut{Expected: 0, Right: Right{Prefix: "/a", Identity: "bob", Rights: AllRights}},
		&RightsRemove{Expected: 0, Prefix: "/a", Identity: "bob"},
		&TokenPut{Token{ID: "t0", Identity: "bob", Hash: [HashLen]byte{7}, CreatedAt: 1e12, ExpiresAt: 2e12}},
		&AuthSet{On: true, Token: Token{ID: "t1", Identity: "root", Hash: [HashLen]byte{8}, CreatedAt: 1e12}},
		&TokenRemove{ID: "t0"},
		&AuthSet{On: false},
		&Join{
			UUID: "u2", Name: "two", Replicaset: "storage_9", Address: "b:1", RaftAddress: "b:3",
			Tier: "storage", Domain: []Label{{"DC", "SPB"}, {"RACK", "1"}},
			Version: Version{1, 3, 0}, LastOfPreviousMajor: Version{0, 9, 9}, Cluster: "demo", Wall: 1e12,
		},
		&Join{UUID: "u3", Tier: "arbiter", RaftAddress: "c:2", Domain: []Label{{"DC", "ARB"}, {"RACK", "1"}},
			Version: Version{1, 3, 0}},
		&InstanceUpdate{
			Instance: 2, Expected: 19, Target: Online, Reason: ReasonJoin, Force: true,
			Start: true, Address: "b:1", RaftAddress: "b:4",
			Domain: []Label{{"DC", "SPB"}, {"RACK", "2"}}, Version: Version{1, 3, 1},
			LastOfPreviousMajor: Version{0, 9, 9}, Wall: 1e12,
		},
		&InstanceCurrent{2, InstanceState{Online, 1}},
		&InstanceDrain{2, true},
		&ReplicaAdd{MetaShardID, 2, RoleNonVoting},
		&ReplicaRole{MetaShardID, 2, RoleNonVoting},
		&ReplicaTarget{MetaShardID, 2, RoleVoter},
		&ReplicaRole{MetaShardID, 2, RoleVoter},
		&MasterTarget{MetaShardID, 2},
		&MasterCurrent{MetaShardID, 2},
		&ReplicaTarget{MetaShardID, 2, RoleNone},
		&ReplicaRole{MetaShardID, 2, RoleNone},
		&ShardsCreate{2, 2},
		&ReplicasetIsReady{2},
		&WeightSet{2, 500, true},
		&TierReplicationFactor{2, 3, 1e12},
		&BucketsAssign{2},
		&ShardReady{Shard: 301, Expected: 36},
		&ShardReady{Shard: 302, Expected: 36},
		&MoveBegin{Tier: 2, First: 1, Count: 4, From: 301, To: 302},
		&MoveCommit{MoveRef{2, 1, 2}},
		&MoveEnd{MoveRef{2, 1, 2}},
		&MoveBegin{Tier: 2, First: 2, Count: 1, To: 301},
		&MoveAbort{MoveRef{2, 2, 3}},
		&InstanceUpdate{Instance: 1, Target: Online, Start: true, Address: "b:1",
			Domain: []Label{{"DC", "MSK"}, {"RACK", "1"}}, Version: Version{1, 3, 0}},
		&ClusterVersion{Version{1, 3, 0}},
		&InstanceUpdate{Instance: 2, Target: Offline, Reason: ReasonShutdown, IfNotNeeded: true},
		&InstanceUpdate{Instance: 3, Target: Expelled, Reason: ReasonExpel},
		&ReplicasetExpel{3},
		&ReplicasetIsExpelled{3, 1e12},
		&Join{UUID: "u4", Tier: "storage", Replicaset: "spare", RaftAddress: "d:2",
			Domain: []Label{{"DC", "MSK"}, {"RACK", "3"}}, Version: Version{1, 3, 0}},
		&ShardsCreate{4, 4},
		&ShardsRemove{4},
		&InstanceReassign{Instance: 4, Expected: 50, Replicaset: 2},
		&TokensUsed{At: 1e12, IDs: []string{"t0", "t1"}},
		&TierShards{2, 4},
		&ShardAdd{2, 2, 2},
		&TierShards{2, 2},
		&ShardRemove{305},
		&TierReplicationFactor{2, 2, 0},
		&UpgradeHold{true},
		&TrustPut{Trust{Name: "ci", Issuer: "https://ci", Audience: "signalbox", Keys: []byte("{}"), KeysAt: 1e12,
			CreatedAt: 1e12, Rules: []TrustRule{{If: []TrustCondition{{Claim: "ref", Pattern: "*"}}, As: "{repository}"}}}},
		&TrustRemove{Name: "ci"},
	}
}

// bootstrapOfSecondTier is the other way in which a cluster begins.
func bootstrapOfSecondTier() *Bootstrap {
	return &Bootstrap{Cluster: "c", Instance: 1, Tier: "second", TierID: 1, Buckets: 8, CanVote: true,
		Tiers: []TierSpec{{Name: "first", Buckets: 8}}, Shards: []uint64{2}, NodeConfig: protocol.DefaultNodeConfig()}
}

// ofRestoredCluster are the commands that only a restored cluster has.
func ofRestoredCluster() []Command {
	return []Command{
		&Bootstrap{Cluster: "c", Instance: 1, Tier: "second", TierID: 1, Buckets: 8, CanVote: true,
			Tiers: []TierSpec{{Name: "first", Buckets: 8}}, NodeConfig: protocol.DefaultNodeConfig(),
			Restored: []byte("map"), RestoredEpoch: 5, RestoredBackup: 1 << 63},
		&TierRestored{Tier: 1, Backup: 1 << 63, Shards: []uint64{2, 3, 300}},
	}
}

func TestCommandRoundTrip(t *testing.T) {
	seen := map[Kind]bool{}
	for _, c := range append(append(examples(), bootstrapOfSecondTier()), ofRestoredCluster()...) {
		seen[c.kind()] = true
		op := OpID{15: 7}
		entry := AppendCommand(nil, op, c)
		gotOp, got := decodeCommand(entry)
		if gotOp != op || !reflect.DeepEqual(got, c) {
			t.Errorf("%#v came back as %#v", c, got)
		}
		for i := range entry {
			if _, got := decodeCommand(entry[:i]); got != nil {
				t.Errorf("%T cut to %d bytes was read as %#v", c, i, got)
			}
		}
		if _, got := decodeCommand(append(entry, 0)); got != nil {
			t.Errorf("%T with a byte more was read", c)
		}
		entry[0] = FormatVersion + 1
		if _, got := decodeCommand(entry); got != nil {
			t.Errorf("%T of another format version was read", c)
		}
	}
	for k := range 256 {
		command := newCommand[k]
		if (command != nil) != seen[Kind(k)] || command != nil && command().kind() != Kind(k) {
			t.Errorf("kind %d is another command's, or has no example; give it one", k)
		}
	}
}

// TestHugeCountsAllocateNothing: a length or count that the entry cannot hold is refused before
// memory is taken for it.
func TestHugeCountsAllocateNothing(t *testing.T) {
	if form.Race {
		t.Skip("the race detector allocates")
	}
	huge := binary.AppendUvarint(nil, 1<<40)
	head := append([]byte{FormatVersion, byte(KindNodeCommit)}, make([]byte, len(OpID{}))...)
	entries := [][]byte{
		append(head, huge...),
		append(append(append([]byte{}, head...), huge...), make([]byte, 100)...),
	}
	m := New()
	for _, entry := range entries {
		if n := testing.AllocsPerRun(10, func() { m.Apply(1, entry) }); n > 20 {
			t.Errorf("%d allocations", int(n))
		}
	}
}

// TestFlippedBitIsDetected: a snapshot with one bit changed is refused.
func TestFlippedBitIsDetected(t *testing.T) {
	good := snapshotOf(t, exampleMachine())
	for i := range good {
		for bit := range 8 {
			if bit != i%8 && !form.Is(form.Long) {
				continue // one bit of each byte
			}
			bad := bytes.Clone(good)
			bad[i] ^= 1 << bit
			if m, err := Restore(bytes.NewReader(bad)); err == nil {
				t.Fatalf("bit %d of byte %d of %d: restored as revision %d", bit, i, len(good), m.Revision())
			}
		}
		if _, err := Restore(bytes.NewReader(good[:i])); !errors.Is(err, io.EOF) &&
			!errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut to %d bytes: %v", i, err)
		}
	}
}

// TestManyNodesTakeManyChunks saves more than a chunk holds.
func TestManyNodesTakeManyChunks(t *testing.T) {
	m := exampleMachine()
	for i := range uint64(400) {
		path := "/" + strings.Repeat("x", 500) + string([]byte{'a' + byte(i%26), 'a' + byte(i/26)})
		entry := AppendCommand(nil, OpID{1, byte(i), byte(i >> 8)},
			&NodeCreate{Path: path, Config: protocol.DefaultNodeConfig()})
		if res := m.apply(entry); res.Status != protocol.StatusOK {
			t.Fatal(res.Message)
		}
	}
	if again := restored(t, m); again.Digest() != m.Digest() || again.NumNodes() != m.NumNodes() {
		t.Fatal("restored otherwise")
	}
}

// TestLongRefusalsDecode: whatever a refusal quotes, its bytes can be decoded, and saved.
func TestLongRefusalsDecode(t *testing.T) {
	m := exampleMachine()
	for i, path := range []string{strings.Repeat("\x00", protocol.MaxPathLen), "/a" + strings.Repeat("/x", 511)} {
		for j, c := range []Command{
			&NodeCreate{Path: path}, &NodeCreate{Path: path}, &NodeDrop{Path: path[:len(path)-2]},
			&NodeAlter{Path: path},
			&RightsPut{Right: Right{Prefix: path}},
			&RightsRemove{Prefix: path + "x", Identity: strings.Repeat("\xff", maxIdentity)},
		} {
			if _, err := DecodeResult(m.Apply(1, AppendCommand(nil, OpID{4, byte(i), byte(j)}, c))); err != nil {
				t.Errorf("%T %q: %v", c, path[:10], err)
			}
		}
	}
	restored(t, m)
}

// TestOpsAreEvictedInOrder: the memory of ops is bounded.
func TestOpsAreEvictedInOrder(t *testing.T) {
	m := exampleMachine()
	known := m.ops.len()
	for i := range uint64(MaxOps) {
		current, _ := m.Keys()
		m.apply(AppendCommand(nil, OpID{2, byte(i), byte(i >> 8)}, &RotateKeys{Current: current.ID}))
		if want := min(MaxOps, known+int(i)+1); m.ops.len() != want || m.opOrder.len() != want {
			t.Fatalf("%d ops remembered, want %d", m.ops.len(), want)
		}
	}
	for i := range uint64(MaxOps) {
		if _, ok := m.opResult(OpID{2, byte(i), byte(i >> 8)}); !ok {
			t.Fatalf("op %d is forgotten", i)
		}
	}
	if _, ok := m.opResult(OpID{1}); ok {
		t.Fatal("the first op is still known")
	}
}

func exampleMachine() *Machine {
	m := New()
	for i, c := range examples() {
		m.Apply(uint64(i+1), AppendCommand(nil, OpID{1, byte(i)}, c))
	}
	return m
}

func snapshotOf(t testing.TB, m *Machine) []byte {
	var b bytes.Buffer
	if _, err := m.BeginSnapshot().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestExamplesApply keeps the examples, which the fuzz targets start from, such that each of them
// does something.
func TestExamplesApply(t *testing.T) {
	m := New()
	for i, c := range examples() {
		before := m.Revision()
		if res := m.apply(AppendCommand(nil, OpID{}, c)); res.Status != protocol.StatusOK ||
			m.Revision() != before+1 {
			t.Errorf("example %d, %T: %s %s, revision %d", i, c, res.Status, res.Message, m.Revision())
		}
	}
}

// FuzzApply cuts the bytes into entries: a length byte before each. Whatever they are, nothing
// panics, the state keeps its rules, and can be saved.
func FuzzApply(f *testing.F) {
	var all []byte
	for _, c := range examples() {
		entry := AppendCommand(nil, OpID{}, c)
		if len(entry) > 255 {
			f.Fatalf("the entry of %T has %d bytes; make it shorter", c, len(entry))
		}
		all = append(append(all, byte(len(entry))), entry...)
		f.Add(bytes.Clone(all))
	}
	second := AppendCommand(nil, OpID{}, bootstrapOfSecondTier())
	f.Add(append([]byte{byte(len(second))}, second...))
	for _, c := range ofRestoredCluster() {
		entry := AppendCommand(nil, OpID{}, c)
		f.Add(append([]byte{byte(len(entry))}, entry...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := New()
		for index := uint64(1); len(data) > 0 && index < 100; index++ {
			n := min(int(data[0]), len(data)-1)
			if _, err := DecodeResult(m.Apply(index, data[1:1+n])); err != nil {
				t.Fatal(err)
			}
			data = data[1+n:]
		}
		if err := m.Check(); err != nil {
			t.Fatal(err)
		}
		if again := restored(t, m); again.Digest() != m.Digest() {
			t.Fatal("restored otherwise")
		}
	})
}

// FuzzRestore reads snapshots whose checksums are made right first, so that the bytes behind them
// matter. What is accepted can be gone on from.
func FuzzRestore(f *testing.F) {
	f.Add(snapshotOf(f, New()))
	f.Add(snapshotOf(f, exampleMachine()))
	f.Fuzz(func(t *testing.T, data []byte) {
		data = withChecksums(data)
		m, err := Restore(bytes.NewReader(data))
		if err != nil {
			return
		}
		for i, c := range examples() {
			m.Apply(uint64(i), AppendCommand(nil, OpID{3, byte(i)}, c))
			if err := m.Check(); err != nil {
				t.Fatalf("after %T: %v", c, err)
			}
		}
		for b := range uint32(100) {
			m.Route(0, b*b)
		}
		if again := restored(t, m); again.Digest() != m.Digest() {
			t.Fatal("restored otherwise")
		}
	})
}

// withChecksums sets each chunk's checksum, and the digest if all else can be read.
func withChecksums(data []byte) []byte {
	data = bytes.Clone(data)
	rest := data[min(len(data), len(snapshotMagic)+1):]
	for len(rest) > 8 {
		n := int(binary.BigEndian.Uint32(rest))
		if n > len(rest)-8 {
			break
		}
		payload := rest[8 : 8+n]
		if n > 8 && payload[0] == sectionEnd {
			t := restorer{in: bytes.NewReader(data[len(snapshotMagic)+1:])}
			for t.section < sectionEnd && t.chunk() == nil {
				binary.BigEndian.PutUint64(payload[n-8:], t.state.Digest())
			}
		}
		binary.BigEndian.PutUint32(rest[4:], crc32.Checksum(payload, castagnoli))
		rest = rest[8+n:]
	}
	return data
}
