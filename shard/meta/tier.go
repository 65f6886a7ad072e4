package meta

import (
	"slices"
	"sort"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// DefaultShardsPerReplicaset applies to tiers that do not say otherwise. Part of format version 1.
const DefaultShardsPerReplicaset = 4

// FirstEpoch is the bucket epoch of the first assignment. Each change of a bucket's owner raises
// it.
const FirstEpoch = 1

// Tier is a class of instances with a key space of its own. The bootstrap makes all tiers.
type Tier struct {
	ID                  uint8
	Name                string
	Buckets             uint32 // 0: no data
	ReplicationFactor   uint32 // how many instances a replicaset is filled up to
	ShardsPerReplicaset uint32 // how many each replicaset is to have; while it changes, some have more or fewer
	CanVote             bool   // in the meta shard
	Bootstrapped        bool   // its buckets were assigned
	// RaisedAt says when the last copies came to be configured, one after the other: wall clocks in
	// ms since 1970, for display. Copies of the bootstrap have no time. Invariant: it is shorter
	// than the replication factor, and has no 0.
	RaisedAt []uint64
	// Restore says from which backup the tier is to be restored before its buckets are assigned;
	// zero if it is not, or no more.
	Restore RestoreMark
	// Runs say which shard owns which buckets, in bucket order. Invariant: they cover 0..Buckets-1
	// without gap or overlap, neighbours differ in shard or epoch, and every shard is of this tier.
	// Before the assignment there is one run, of shard 0 and epoch 0.
	Runs []Run
}

// Run is a run of buckets with one owner.
type Run struct {
	First uint32
	Count uint32
	Shard uint64
	Epoch uint64 // never goes back: a shard that knows a newer one does not serve an older
}

type tierTable struct {
	tiers []Tier // in order of id
}

// Tiers in order of id.
func (x *tierTable) Tiers() []Tier { return x.tiers }

// TierByName finds one.
func (x *tierTable) TierByName(name string) (Tier, bool) {
	return first(x.tiers, func(t *Tier) bool { return t.Name == name })
}

// Tier finds one.
func (x *tierTable) Tier(id uint8) (Tier, bool) {
	return first(x.tiers, func(t *Tier) bool { return t.ID == id })
}

// Route is the shard that owns a bucket, and the bucket's epoch; 0, 0 if there is no such tier or
// bucket.
func (x *tierTable) Route(tier uint8, bucket uint32) (shard, epoch uint64) {
	for i := range x.tiers {
		if x.tiers[i].ID == tier {
			return x.tiers[i].Route(bucket)
		}
	}
	return 0, 0
}

// DataTier is the first tier with buckets: that of new coordination nodes.
func (x *tierTable) DataTier() uint8 {
	for i := range x.tiers {
		if x.tiers[i].Buckets > 0 {
			return x.tiers[i].ID
		}
	}
	return 0
}

// Route is the shard that owns a bucket of the tier, and the bucket's epoch; 0, 0 if there is no
// such bucket.
func (t *Tier) Route(bucket uint32) (shard, epoch uint64) {
	if bucket >= t.Buckets {
		return 0, 0
	}
	run := &t.Runs[t.runAt(bucket)]
	return run.Shard, run.Epoch
}

// runAt is the index of the run with a bucket of the tier.
func (t *Tier) runAt(bucket uint32) int {
	return sort.Search(len(t.Runs), func(i int) bool { return t.Runs[i].First > bucket }) - 1
}

// TierReplicationFactor changes how many instances a replicaset of the tier is filled up to. Later
// joins follow it, and spare instances are reassigned: see InstanceReassign.
type TierReplicationFactor struct {
	Tier              uint8
	ReplicationFactor uint32 // 1 to 64
	Wall              uint64 // wall clock of that, ms since 1970
}

func (c *TierReplicationFactor) kind() Kind { return KindTierReplicationFactor }

func (c *TierReplicationFactor) fields(f *varint.Fields) {
	varint.Byte(f, &c.Tier)
	f.Uint32(&c.ReplicationFactor)
	f.Uint(&c.Wall)
}

func (c *TierReplicationFactor) apply(s *State) Result {
	t, ok := s.Tier(c.Tier)
	switch {
	case !ok:
		return refuse(protocol.StatusNotFound, "there is no tier %d", c.Tier)
	case c.ReplicationFactor == 0 || c.ReplicationFactor > maxReplicationFactor:
		return refuse(protocol.StatusBadRequest, "replication factor is %d; choose 1 to %d",
			c.ReplicationFactor, maxReplicationFactor)
	case t.ReplicationFactor == c.ReplicationFactor:
		return Result{Revision: unchanged}
	case t.ToBeRestored():
		return t.refuseUnrestored()
	}
	switch raised := int(c.ReplicationFactor) - int(t.ReplicationFactor); {
	case raised < 0:
		t.RaisedAt = t.RaisedAt[:max(0, len(t.RaisedAt)+raised)]
	case c.Wall == 0:
		t.RaisedAt = nil
	default:
		t.RaisedAt = append(slices.Clone(t.RaisedAt), slices.Repeat([]uint64{c.Wall}, raised)...)
	}
	t.ReplicationFactor = c.ReplicationFactor
	s.putTier(t)
	return Result{}
}

// putTier replaces a record that exists.
func (x *tierTable) putTier(t Tier) {
	x.tiers = slices.Clone(x.tiers)
	for i := range x.tiers {
		if x.tiers[i].ID == t.ID {
			x.tiers[i] = t
		}
	}
}
