// Package meta is the pure state machine of the meta shard, which owns the cluster map: instances,
// tiers and their buckets, shards, coordination nodes, ticket keys and rights.
//
// Apply feeds a machine the entries of its log. Methods of State, which the machine embeds, read
// it. Copying m.State is a snapshot: an immutable value. The package has no clock, randomness, I/O
// or goroutines: what must be random or timed is in the command. DESIGN.md has the flow.
package meta

import (
	"cmp"

	"github.com/signalbox-dev/signalbox/protocol"
)

// State is the cluster map at one revision: an immutable value. A copy costs a few words and may be
// read by any goroutine without a lock. Slices that its methods return are shared and must not be
// written to.
type State struct {
	applied    uint64 // log index; no part of the digest
	revision   uint64 // counts the commands that changed something
	mapVersion uint64 // the revision of the last change to what clients route by

	cluster        string // empty until the bootstrap
	clientCluster  string // its id for clients, if that is another one
	clusterName    string
	clusterVersion Version
	upgradeHeld    bool   // the cluster's version stays
	keys           [2]Key // current, previous

	instanceTable
	replicasetTable
	tierTable
	shardTable
	moveTable
	nodeMap
	access
	opMemory
}

// Bootstrapped reports whether the cluster exists.
func (s *State) Bootstrapped() bool { return s.cluster != "" }

// Cluster is the cluster's id, empty before the bootstrap.
func (s *State) Cluster() string { return s.cluster }

// ClientCluster is the id by which clients know the cluster. It differs from Cluster if the cluster
// was restored for the clients of a former one: see Bootstrap.KeepClients.
func (s *State) ClientCluster() string { return cmp.Or(s.clientCluster, s.cluster) }

// ClusterName is the cluster's name for people.
func (s *State) ClusterName() string { return s.clusterName }

// ClusterVersion is the version whose rules apply: not above that of any instance.
func (s *State) ClusterVersion() Version { return s.clusterVersion }

// UpgradeHeld reports whether an operator keeps the cluster's version as it is.
func (s *State) UpgradeHeld() bool { return s.upgradeHeld }

// Formats returns the highest formats that the cluster's version allows.
func (s *State) Formats() Formats { return FormatsOf(s.clusterVersion) }

// Entry returns the entry of the meta shard's log for a command, in the highest format that the
// cluster's version allows. A command that needs a later one is refused.
func (s *State) Entry(op OpID, c Command) ([]byte, error) {
	f := s.Formats()
	if b, ok := c.(*Bootstrap); ok && !s.Bootstrapped() {
		f = FormatsOf(b.Version)
	}
	if need := formatOf(c); need > f.Meta {
		for _, line := range formats {
			if line.Meta >= need {
				return nil, needsVersion(line.from)
			}
		}
	}
	return appendEntry(nil, f.Meta, op, c), nil
}

// Keys are the key that signs new tickets and the previous one, which still verifies. The previous
// one has ID 0 until the first rotation.
func (s *State) Keys() (current, previous Key) { return s.keys[0], s.keys[1] }

// Revision counts the commands that changed something.
func (s *State) Revision() uint64 { return s.revision }

// MapVersion is the revision of the last change of what clients route by: addresses of members,
// which of them host which shards, masters, runs of buckets.
func (s *State) MapVersion() uint64 { return s.mapVersion }

// AppliedIndex is the log index of the last entry that was applied.
func (s *State) AppliedIndex() uint64 { return s.applied }

// first is the first record of a list that is the one wanted.
func first[T any](list []T, wanted func(*T) bool) (x T, ok bool) {
	for i := range list {
		if wanted(&list[i]) {
			return list[i], true
		}
	}
	return x, false
}

// word is the word of a value, by number.
func word[T ~uint8](value T, words ...string) string {
	if int(value) < len(words) && words[value] != "" {
		return words[value]
	}
	return "unknown"
}

// Bounds of the map, part of format version 1.
const (
	MaxBuckets = 1 << 16 // of a tier: a session id has 16 bits for its home bucket
	MaxTiers   = 1 << 4  // a session id has 4 bits for its tier
	MaxShards  = 1 << 12
	MaxShardID = 1<<40 - 1 // the highest id of a data shard

	maxInstances = 1 << 12
	maxUUID      = 64
	maxReason    = 512
	maxMoves     = 1 << 10

	maxInstanceID        = 1 << 40
	maxReplicationFactor = 64
	maxWeight            = 1_000_000_000
	maxName              = 256
	maxGeneratedName     = maxName + 32 // of a generated name
	maxAddress           = 512
)

// Machine is the state after some prefix of the log. Apply must not run beside other uses of the
// machine; a copy of State has no such limit.
type Machine struct {
	State
}

// New is the machine before the first entry.
func New() *Machine { return &Machine{} }

// Apply applies the entry with this log index and returns the bytes of its Result. Entries come in
// the order of the log, once each. Bytes that are not a command change nothing and are answered
// with BAD_REQUEST. The entry is not kept.
func (m *Machine) Apply(index uint64, entry []byte) []byte {
	m.applied = index
	res := m.apply(entry)
	return AppendResult(nil, res)
}

func (m *Machine) apply(entry []byte) Result {
	op, c := decodeCommand(entry)
	if c == nil {
		return Result{Status: protocol.StatusBadRequest, Message: "the entry is not a command of a known format",
			Revision: m.revision}
	}
	if res, ok := m.opResult(op); ok {
		return res
	}
	next := m.State
	next.revision++
	res := c.apply(&next)
	if res.Status != protocol.StatusOK || res.Revision == unchanged {
		next = m.State
	}
	res.Revision = next.revision
	// Refusals are remembered too: an older copy of the entry that comes later must get the same
	// answer.
	next.rememberOp(op, res)
	m.State = next
	return res
}

// unchanged, as a result's revision, says that an OK command changed nothing: the revision stays.
const unchanged = ^uint64(0)
