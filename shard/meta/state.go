package meta

import "cmp"

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
