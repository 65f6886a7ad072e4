package meta

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// RestoreMark says from which backup a tier is to be restored. The shards of a tier with a mark own
// no buckets, so nobody serves a part of its data. Each tier has a mark of its own, since an
// instance is of one tier: the tiers are restored one by one.
type RestoreMark struct {
	Backup uint64 // digest of the backup; never 0
	Epoch  uint64 // of the restored buckets, above all in the backup
	Wall   uint64 // wall clock of the bootstrap, ms since 1970: every try takes it for the age of the backup
}

// ToBeRestored reports whether the data of the tier is still to come from a backup.
func (t *Tier) ToBeRestored() bool { return t.Restore.Epoch > 0 }

// CheckRestore says why the tier cannot be restored from the backup with this digest.
func (t *Tier) CheckRestore(backup uint64) error {
	switch {
	case !t.ToBeRestored():
		return protocol.Errorf(protocol.StatusPreconditionFailed,
			"nothing of tier %s is to be restored in this cluster: it has its data, or begins without any; "+
				"start this instance with serve", t.Name)
	case t.Restore.Backup != backup:
		return protocol.Errorf(protocol.StatusPreconditionFailed,
			"tier %s of this cluster is to be restored from the backup with digest %016x, and this one has %016x; take that one",
			t.Name, t.Restore.Backup, backup)
	}
	return nil
}

// RestoredRuns divides the buckets of a tier that is to be restored among shards, as TierRestored
// does.
func (t *Tier) RestoredRuns(shards []uint64) []Run {
	return divideBuckets(t.Buckets, shards, t.Restore.Epoch)
}

// refuseUnrestored refuses what would change the data, or the shards, that a restore works with.
func (t *Tier) refuseUnrestored() Result {
	return refuse(protocol.StatusPreconditionFailed,
		"tier %s is to be restored from a backup; restore it first, with signalbox cluster restore", t.Name)
}

// TierRestored assigns the buckets of a tier that was to be restored to shards that have imported
// all of them. The shards must activate them before they are ready. The tier's other shards are
// removed: another restore may have imported a part to them. Their replicasets get new ones.
//
// NOT_FOUND: no such tier. BAD_REQUEST: no list of shards. PRECONDITION_FAILED: the tier is not to
// be restored, or from another backup, or a shard is gone.
type TierRestored struct {
	Tier   uint8
	Backup uint64   // that of the mark
	Shards []uint64 // rising
	// Tokens is the highest fencing token from which a shard of the backup continues. Nodes that are
	// made from now on begin above it.
	Tokens uint64
}

func (*TierRestored) kind() Kind { return KindTierRestored }

func (c *TierRestored) fields(f *varint.Fields) {
	varint.Byte(f, &c.Tier)
	f.Uint(&c.Backup)
	varint.List(f, &c.Shards, MaxShards, func(id *uint64, f *varint.Fields) { f.Uint(id) })
	f.Uint(&c.Tokens)
}

func (c *TierRestored) apply(s *State) Result {
	t, ok := s.Tier(c.Tier)
	switch {
	case !ok:
		return refuse(protocol.StatusNotFound, "there is no tier %d", c.Tier)
	case !t.ToBeRestored():
		return refuse(protocol.StatusPreconditionFailed,
			"tier %s is not to be restored, or was restored already", t.Name)
	case t.Restore.Backup != c.Backup:
		return refuse(protocol.StatusPreconditionFailed,
			"tier %s is to be restored from the backup with digest %016x, not %016x; take that one",
			t.Name, t.Restore.Backup, c.Backup)
	case len(c.Shards) == 0 || uint64(len(c.Shards)) > uint64(t.Buckets) || !strictlyAscending(c.Shards):
		return refuse(protocol.StatusBadRequest,
			"%d shards in some order for %d buckets of tier %s; name each once, in order",
			len(c.Shards), t.Buckets, t.Name)
	}
	for _, id := range c.Shards {
		if i, ok := findShard(s.shards, id); !ok || s.shards[i].Tier != t.ID {
			return refuse(protocol.StatusPreconditionFailed,
				"shard %d of tier %s is gone; restore the tier again", id, t.Name)
		}
	}
	runs := t.RestoredRuns(c.Shards)
	t.Restore = RestoreMark{}
	s.shards = slices.DeleteFunc(slices.Clone(s.shards), func(x Shard) bool {
		return x.Tier == t.ID && !slices.Contains(c.Shards, x.ID)
	})
	t.assign(s, runs)
	s.tokenFloor = max(s.tokenFloor, c.Tokens)
	return Result{}
}
