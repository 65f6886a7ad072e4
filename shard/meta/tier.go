package meta

import (
	"cmp"
	"slices"
	"sort"

	"github.com/signalbox-dev/signalbox/protocol"
)

// DefaultShardsPerReplicaset is what a tier has of which nothing else was said. Part of format
// version 1.
const DefaultShardsPerReplicaset = 4

// Bounds of the map, part of format version 1.
const (
	MaxBuckets = 1 << 16 // of a tier: a session id has 16 bits for its home bucket
	MaxTiers   = 1 << 4  // a session id has 4 bits for its tier
	MaxShards  = 1 << 12
	MaxShardID = 1<<40 - 1 // ids above are not data shards'

	maxInstances = 1 << 12
	maxUUID      = 64
	maxReason    = 512
	maxMoves     = 1 << 10

	maxInstanceID        = 1 << 40
	maxReplicationFactor = 64
	maxWeight            = 1_000_000_000
	maxName              = 256
	maxGeneratedName     = maxName + 32 // of a name that was made from one, and numbers
	maxAddress           = 512
)

// FirstEpoch is the bucket epoch of the bootstrap's assignment. Each change of a bucket's owner
// raises it.
const FirstEpoch = 1

// Tier is a class of instances with a key space of its own. The tiers are those of the bootstrap,
// for good.
type Tier struct {
	ID                  uint8
	Name                string
	Buckets             uint32 // 0: its instances hold no data
	ReplicationFactor   uint32 // how many instances a replicaset is filled up to
	ShardsPerReplicaset uint32
	CanVote             bool // its instances may vote in the meta shard
	Bootstrapped        bool // the buckets were assigned
	// Runs say who owns the buckets, in bucket order. Invariant: they cover 0..Buckets-1 without
	// gap or overlap, neighbours differ in shard or epoch, and every shard is one of this tier.
	// Until the buckets were assigned there is one run, of shard 0 and epoch 0.
	Runs []Run
}

// Run is a run of buckets with one owner.
type Run struct {
	First uint32
	Count uint32
	Shard uint64
	Epoch uint64 // bucket epoch: a shard that was told of a newer one does not serve an older. It never goes back
}

func compare[T cmp.Ordered](a, b T) int { return cmp.Compare(a, b) }

// Tiers in order of id.
func (s *State) Tiers() []Tier { return s.tiers }

// TierByName finds one.
func (s *State) TierByName(name string) (Tier, bool) {
	for i := range s.tiers {
		if s.tiers[i].Name == name {
			return s.tiers[i], true
		}
	}
	return Tier{}, false
}

// Tier finds one.
func (s *State) Tier(id uint8) (Tier, bool) {
	for i := range s.tiers {
		if s.tiers[i].ID == id {
			return s.tiers[i], true
		}
	}
	return Tier{}, false
}

// Route says which shard owns a bucket, and the bucket's epoch; 0, 0 for a tier or bucket that does
// not exist.
func (s *State) Route(tier uint8, bucket uint32) (shard, epoch uint64) {
	for i := range s.tiers {
		if s.tiers[i].ID == tier {
			return s.tiers[i].Route(bucket)
		}
	}
	return 0, 0
}

// Route says which shard owns a bucket of the tier, and the bucket's epoch; 0, 0 for a bucket that
// does not exist.
func (t *Tier) Route(bucket uint32) (shard, epoch uint64) {
	if bucket >= t.Buckets {
		return 0, 0
	}
	run := &t.Runs[t.runAt(bucket)]
	return run.Shard, run.Epoch
}

// runAt is the index of the run that a bucket of the tier is in.
func (t *Tier) runAt(bucket uint32) int {
	return sort.Search(len(t.Runs), func(i int) bool { return t.Runs[i].First > bucket }) - 1
}

// TierReplicationFactor changes how many instances a replicaset of the tier is filled up to.
// Instances that join later go by it, and free ones are reassigned; see InstanceReassign.
type TierReplicationFactor struct {
	Tier              uint8
	ReplicationFactor uint32 // 1 to 64
}

func (*TierReplicationFactor) kind() Kind { return KindTierReplicationFactor }

func (c *TierReplicationFactor) append(b []byte) []byte {
	return appendUint(append(b, c.Tier), uint64(c.ReplicationFactor))
}

func (c *TierReplicationFactor) decode(r *reader) {
	c.Tier = r.byte()
	c.ReplicationFactor = r.uint32()
}

func (c *TierReplicationFactor) apply(s *State) Result {
	t, ok := s.Tier(c.Tier)
	switch {
	case !ok:
		return refuse(protocol.StatusNotFound, "there is no tier %d", c.Tier)
	case c.ReplicationFactor == 0 || c.ReplicationFactor > maxReplicationFactor:
		return refuse(protocol.StatusBadRequest, "replication factor is %d; choose 1 to %d", c.ReplicationFactor, maxReplicationFactor)
	case t.ReplicationFactor == c.ReplicationFactor:
		return Result{Revision: unchanged}
	}
	t.ReplicationFactor = c.ReplicationFactor
	s.putTier(t)
	return Result{}
}

// putTier replaces a record that exists.
func (s *State) putTier(t Tier) {
	s.tiers = slices.Clone(s.tiers)
	for i := range s.tiers {
		if s.tiers[i].ID == t.ID {
			s.tiers[i] = t
		}
	}
}
