package meta

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// DefaultPath is the coordination node that the bootstrap creates.
const DefaultPath = "/default"

// TierSpec is a tier in the bootstrap.
type TierSpec struct {
	Name                string
	Buckets             uint32 // at most MaxBuckets; 0 for a tier without data
	ReplicationFactor   uint32 // 0 means 1
	ShardsPerReplicaset uint32 // 0 means DefaultShardsPerReplicaset
	CanVote             bool
}

// Bootstrap makes the cluster: its id and first ticket key, one instance with its tier and
// replicaset, its data shards, and the node DefaultPath in phase creating. With replication factor
// 1 the replicaset is ready, and the buckets are spread evenly over its shards. Otherwise the
// replicaset waits for more instances (ReplicasetIsReady), and the buckets for the replicaset
// (BucketsAssign). With the id of the existing cluster it changes nothing; with another id it is
// refused with ALREADY_EXISTS.
type Bootstrap struct {
	Cluster     string // 1..256 bytes, unique in the world
	ClusterName string // for display
	Secret      [KeySecretLen]byte

	Instance    uint64 // id, at least 1
	UUID        string
	Name        string
	Address     string
	RaftAddress string
	Domain      []Label
	Version     Version // of the instance, and of the cluster

	Tier                string // name of the instance's tier
	TierID              uint8  // of the instance's tier
	Buckets             uint32 // at least one per shard, at most MaxBuckets; 0 for a tier without data
	ReplicationFactor   uint32 // 0 means 1
	ShardsPerReplicaset uint32 // 0 means as many as Shards
	CanVote             bool
	Tiers               []TierSpec // more tiers, with the other ids from 0 on, in this order
	Shards              []uint64   // ids, rising, 1 to MaxShardID; none in a tier without data

	NodeConfig protocol.NodeConfig // of DefaultPath: effective and complete
	Wall       uint64              // ms since 1970, for display

	// Restored is the snapshot of another cluster's meta shard (Snapshot.WriteTo). This cluster
	// takes over its coordination nodes and rights instead of DefaultPath. Instances, shards and
	// keys are not taken over. Empty for a new cluster.
	Restored []byte
	// RestoredEpoch is then the bucket epoch of the restored buckets. It must be above all bucket
	// epochs of the other cluster: it tells copies of buckets apart.
	RestoredEpoch uint64
	// RestoredBackup is then the digest of the backup. The tiers with data are found by their ids,
	// have as many buckets as there, and are to be restored: see TierRestored. There are no Shards.
	RestoredBackup uint64
	// KeepClients has clients of the restored cluster accept this one: they know it by the same id.
	// Instances do not, since raft messages of the former ones must not reach these.
	KeepClients bool
}

func (c *Bootstrap) kind() Kind { return KindBootstrap }

func (c *Bootstrap) fields(f *varint.Fields) {
	varint.Byte(f, &c.TierID)
	f.Text(&c.Cluster, maxName)
	f.Text(&c.ClusterName, maxName)
	f.Fixed(c.Secret[:])
	f.Uint(&c.Instance)
	f.Text(&c.UUID, maxUUID)
	f.Text(&c.Name, maxName)
	f.Text(&c.Address, maxAddress)
	f.Text(&c.RaftAddress, maxAddress)
	varint.List(f, &c.Domain, maxLabels, (*Label).fields)
	c.Version.fields(f)
	tiers := append([]TierSpec{c.ownTier()}, c.Tiers...)
	varint.List(f, &tiers, MaxTiers, (*TierSpec).fields)
	if len(tiers) == 0 {
		f.Fail()
		return
	}
	own := tiers[0]
	c.Tier, c.Buckets, c.ReplicationFactor, c.ShardsPerReplicaset, c.CanVote =
		own.Name, own.Buckets, own.ReplicationFactor, own.ShardsPerReplicaset, own.CanVote
	if len(tiers) > 1 {
		c.Tiers = tiers[1:]
	}
	varint.List(f, &c.Shards, MaxShards, func(id *uint64, f *varint.Fields) { f.Uint(id) })
	configFields(f, &c.NodeConfig)
	f.Uint(&c.Wall)
	restored := string(c.Restored)
	f.Text(&restored, MaxRestored)
	if restored != "" {
		c.Restored = []byte(restored)
	}
	f.Uint(&c.RestoredEpoch, &c.RestoredBackup)
	f.Bool(&c.KeepClients)
}

func (c *Bootstrap) ownTier() TierSpec {
	return TierSpec{c.Tier, c.Buckets, c.ReplicationFactor, c.ShardsPerReplicaset, c.CanVote}
}

func (t *TierSpec) fields(f *varint.Fields) {
	f.Text(&t.Name, maxName)
	f.Uint32(&t.Buckets, &t.ReplicationFactor, &t.ShardsPerReplicaset)
	f.Bool(&t.CanVote)
}

func (c *Bootstrap) apply(s *State) Result {
	switch {
	case s.cluster == c.Cluster && c.Cluster != "":
		return Result{Revision: unchanged}
	case s.Bootstrapped():
		return refuse(protocol.StatusAlreadyExists, "the cluster was bootstrapped already, as %s", s.cluster)
	case c.Cluster == "":
		return refuse(protocol.StatusBadRequest, "a cluster needs an id; give one")
	case c.Instance == 0 || c.Instance > maxInstanceID:
		return refuse(protocol.StatusBadRequest, "instance ids start at 1, and are %d at most", uint64(maxInstanceID))
	case !c.CanVote:
		return refuse(protocol.StatusBadRequest,
			"tier %s may not vote; the first instance of a cluster must be of one that may", c.Tier)
	case !canonical(c.Domain):
		return badDomain()
	case (c.RestoredBackup != 0) != (len(c.Restored) > 0) || len(c.Restored) > 0 && len(c.Shards) > 0:
		return refuse(protocol.StatusBadRequest,
			"a cluster is restored from a map and names its backup, and gets its shards afterwards")
	case c.KeepClients && len(c.Restored) == 0:
		return refuse(protocol.StatusBadRequest, "clients are kept with a map to restore; give one")
	case len(c.Shards) == 0 && c.Buckets > 0 && len(c.Restored) == 0:
		return refuse(protocol.StatusBadRequest, "a cluster needs at least one data shard")
	case len(c.Shards) > 0 &&
		(c.Shards[0] == 0 || c.Shards[len(c.Shards)-1] > MaxShardID || !strictlyAscending(c.Shards)):
		return refuse(protocol.StatusBadRequest, "ids of data shards rise from 1 up to %d at most",
			uint64(MaxShardID))
	case c.Buckets < uint32(len(c.Shards)) || c.Buckets > MaxBuckets:
		return refuse(protocol.StatusBadRequest,
			"%d buckets for %d shards; give at least one to each, and %d at most in all", c.Buckets, len(c.Shards), MaxBuckets)
	}
	if res := c.makeTiers(s); res.Status != protocol.StatusOK {
		return res
	}
	if len(c.Restored) > 0 {
		if res := c.restore(s); res.Status != protocol.StatusOK {
			return res
		}
	}
	const replicaset = 1
	s.cluster, s.clusterName, s.clusterVersion = c.Cluster, c.ClusterName, c.Version
	s.keys = [2]Key{{ID: 1, Secret: c.Secret}}
	s.instances = []Instance{{
		ID: c.Instance, UUID: c.UUID, Name: c.Name, Address: c.Address, RaftAddress: c.RaftAddress,
		Replicaset: replicaset, Tier: c.TierID, Domain: c.Domain, Version: c.Version,
		Current: InstanceState{Online, 1}, Target: InstanceState{Online, 1},
		Reason: ReasonJoin, ChangedAt: c.Wall, Revision: s.revision,
	}}
	own := &s.tiers[c.TierID]
	set := Replicaset{ID: replicaset, UUID: c.UUID, Name: c.Tier + "_1", Tier: own.ID, Revision: s.revision}
	if own.ReplicationFactor == 1 {
		set.Phase, set.Weight = ReplicasetReady, DefaultWeight
	}
	s.replicasets = []Replicaset{set}
	s.shards = make([]Shard, len(c.Shards))
	for i, id := range c.Shards {
		s.shards[i] = newShard(id, own.ID, replicaset, c.Instance, s.revision)
		s.nextShard = id
	}
	if set.Phase == ReplicasetReady && len(c.Shards) > 0 {
		own.Bootstrapped = true
		own.Runs = divideBuckets(c.Buckets, c.Shards, FirstEpoch)
	}
	s.metaShard = newShard(MetaShardID, 0, 0, c.Instance, s.revision)
	s.metaShard.Ready = true
	s.nextInstance, s.nextReplicaset = c.Instance, replicaset
	s.mapVersion = s.revision
	if len(c.Restored) > 0 {
		return Result{}
	}
	n := s.addNode(DefaultPath, s.DataTier(), c.NodeConfig, 0, c.Wall)
	return Result{Node: n.ID, Version: n.Revision}
}

// makeTiers makes the tiers; their buckets have no owner yet.
func (c *Bootstrap) makeTiers(s *State) Result {
	if int(c.TierID) > len(c.Tiers) {
		return refuse(protocol.StatusBadRequest, "tier %s has the id %d, and there are %d tiers", c.Tier, c.TierID,
			len(c.Tiers)+1)
	}
	data := false
	for i, spec := range slices.Insert(slices.Clone(c.Tiers), int(c.TierID), c.ownTier()) {
		if _, ok := s.TierByName(spec.Name); ok || (spec.Name == "" && i > 0) {
			return refuse(protocol.StatusBadRequest, "tier %q has no name of its own; give each tier one", spec.Name)
		}
		if i >= MaxTiers {
			return refuse(protocol.StatusBadRequest, "%d tiers; there may be %d", i+1, MaxTiers)
		}
		if spec.ShardsPerReplicaset == 0 && i == int(c.TierID) {
			spec.ShardsPerReplicaset = uint32(len(c.Shards))
		}
		spec.ShardsPerReplicaset = cmp.Or(spec.ShardsPerReplicaset, DefaultShardsPerReplicaset)
		if spec.Buckets > MaxBuckets || spec.ShardsPerReplicaset > MaxShards ||
			(spec.Buckets > 0 && spec.Buckets < spec.ShardsPerReplicaset) {
			return refuse(protocol.StatusBadRequest,
				"tier %s: %d buckets for %d shards per replicaset; give at least one bucket to each, and %d at most in all",
				spec.Name, spec.Buckets, spec.ShardsPerReplicaset, MaxBuckets)
		}
		if spec.ReplicationFactor > maxReplicationFactor {
			return refuse(protocol.StatusBadRequest, "tier %s: replication factor is %d; choose 1 to %d",
				spec.Name, spec.ReplicationFactor, maxReplicationFactor)
		}
		t := Tier{
			ID: uint8(i), Name: spec.Name, Buckets: spec.Buckets,
			ReplicationFactor: max(1, spec.ReplicationFactor), ShardsPerReplicaset: spec.ShardsPerReplicaset,
			CanVote: spec.CanVote,
		}
		if t.Buckets > 0 {
			t.Runs = []Run{{Count: t.Buckets}}
		}
		s.tiers = append(s.tiers[:i:i], t)
		data = data || t.Buckets > 0
	}
	if !data {
		return refuse(protocol.StatusBadRequest, "no tier has buckets; give at least one some")
	}
	return Result{}
}

// newShard is a new group of one replica.
func newShard(id uint64, tier uint8, replicaset, instance, revision uint64) Shard {
	return Shard{
		ID: id, Tier: tier, Replicaset: replicaset,
		Replicas: []Replica{{Instance: instance, Replica: 1, Role: RoleVoter,
			TargetRole: RoleVoter, Founder: true}},
		NextReplica: 1, Master: instance, TargetMaster: instance, Revision: revision,
	}
}

func badDomain() Result {
	return refuse(protocol.StatusBadRequest, "the failure domain is not in order of its keys, or has one twice")
}

func strictlyAscending(list []uint64) bool {
	return slices.IsSorted(list) && len(slices.Compact(slices.Clone(list))) == len(list)
}

func notBootstrapped() Result {
	return refuse(protocol.StatusPreconditionFailed, "the cluster is not bootstrapped yet; retry when it is")
}

// MaxRestored bounds Restored, in bytes. The log takes entries of twice that.
const MaxRestored = 64 << 20

// restoredAhead is how far node ids and revisions are moved on: beyond what the cluster gave out
// after the backup. Part of format version 1.
const restoredAhead = 1 << 20

// restore takes over the nodes, rights, tokens and trusts of the cluster whose snapshot the command
// carries. The revision continues from that cluster's, so that holders of an older map accept the
// new one.
func (c *Bootstrap) restore(s *State) Result {
	in := bytes.NewReader(c.Restored)
	m, err := Restore(in)
	switch {
	case err != nil:
		return refuse(protocol.StatusBadRequest, "the map of the cluster that is to be restored: %v", err)
	case in.Len() > 0 || !m.Bootstrapped():
		return refuse(protocol.StatusBadRequest,
			"the map of the cluster that is to be restored is not one; take another backup")
	case c.Cluster == m.cluster:
		return refuse(protocol.StatusBadRequest, "a restored cluster is another one; give it an id of its own")
	case m.nextNode > maxCounter-restoredAhead || c.RestoredEpoch > maxCounter || len(m.moves) > 0:
		return refuse(protocol.StatusBadRequest,
			"the cluster that is to be restored was moving buckets; take another backup")
	}
	for _, t := range m.tiers {
		for _, run := range t.Runs {
			if run.Epoch >= c.RestoredEpoch {
				return refuse(protocol.StatusBadRequest,
					"bucket epoch %d is not above that of the cluster that is to be restored", c.RestoredEpoch)
			}
		}
	}
	if res := c.markTiers(s, m); res.Status != protocol.StatusOK {
		return res
	}
	s.nodeMap = m.nodeMap
	s.nextNode += restoredAhead
	s.tokenFloor = max(s.tokenFloor, m.tokenFloor)
	s.rights, s.tokens, s.trusts, s.authOn = m.rights, m.tokens, m.trusts, m.authOn
	if c.KeepClients {
		s.clientCluster = m.ClientCluster()
	}
	s.revision += m.revision + restoredAhead
	s.rightsRevision, s.authRevision = s.revision, s.revision
	return Result{}
}

func refuseCopies() Result {
	return refuse(protocol.StatusBadRequest,
		"a cluster is restored to one instance; begin with replication factor 1, and raise it before others join")
}

// markTiers has each tier restored that had data in the other cluster. The ids of tiers are in the
// ids of sessions.
func (c *Bootstrap) markTiers(s *State, m *Machine) Result {
	marked := false
	for _, old := range m.tiers {
		switch {
		case old.ToBeRestored():
			return refuse(protocol.StatusBadRequest,
				"tier %s of the cluster that is to be restored was still to be restored itself; "+
					"take another backup when it is", old.Name)
		case old.Buckets == 0:
			continue
		case int(old.ID) >= len(s.tiers) || s.tiers[old.ID].Buckets != old.Buckets:
			return refuse(protocol.StatusBadRequest,
				"tier %s of the cluster that is to be restored has the id %d and %d buckets; "+
					"give the new cluster such a tier", old.Name, old.ID, old.Buckets)
		case !old.Bootstrapped:
			continue // it has nodes at most
		case s.tiers[old.ID].ReplicationFactor > 1:
			return refuseCopies()
		}
		s.tiers[old.ID].Restore = RestoreMark{Backup: c.RestoredBackup, Epoch: c.RestoredEpoch, Wall: c.Wall}
		marked = true
	}
	if !marked {
		return refuse(protocol.StatusBadRequest,
			"the buckets of the cluster that is to be restored were not assigned yet: there is nothing to restore")
	}
	for _, n := range m.nodes.all() {
		if int(n.Tier) >= len(s.tiers) {
			return refuse(protocol.StatusBadRequest,
				"node %s is of tier %d, and there are %d; give the new cluster as many", n.Path, n.Tier, len(s.tiers))
		}
	}
	return Result{}
}
