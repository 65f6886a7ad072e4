package meta

import (
	"cmp"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// ReplicasetPhase is a replicaset's phase. Numbers are stable.
type ReplicasetPhase uint8

const (
	NotReady           ReplicasetPhase = 0 // fewer instances than the replication factor have come up
	ReplicasetReady    ReplicasetPhase = 1
	ToBeExpelled       ReplicasetPhase = 2 // its buckets move off; irrevocable
	ReplicasetExpelled ReplicasetPhase = 3
)

// String is the phase's word.
func (p ReplicasetPhase) String() string {
	return word(p, "not ready", "ready", "to be expelled", "expelled")
}

// DefaultWeight is the weight of a replicaset that becomes ready, unless a user set another.
const DefaultWeight = 1000

// Replicaset is the set of instances that host the same data shards.
type Replicaset struct {
	ID           uint64 // never reused
	UUID         string
	Name         string // unique among those that are not expelled
	Tier         uint8
	Phase        ReplicasetPhase
	Weight       uint32 // thousandths: its share of the tier's buckets
	WeightByUser bool   // a user set the weight: it is kept when the replicaset becomes ready
	Revision     uint64 // the machine's revision of the last change to this record
}

type replicasetTable struct {
	replicasets    []Replicaset // in order of id
	nextReplicaset uint64       // the last id given out
}

// Replicasets in order of id.
func (t *replicasetTable) Replicasets() []Replicaset { return t.replicasets }

// Replicaset finds one.
func (t *replicasetTable) Replicaset(id uint64) (Replicaset, bool) {
	i, ok := findReplicaset(t.replicasets, id)
	if !ok {
		return Replicaset{}, false
	}
	return t.replicasets[i], true
}

// ReplicasetByName finds the replicaset with a name that is not expelled.
func (t *replicasetTable) ReplicasetByName(name string) (Replicaset, bool) {
	return first(t.replicasets, func(r *Replicaset) bool { return r.Name == name && r.Phase != ReplicasetExpelled })
}

func findReplicaset(list []Replicaset, id uint64) (int, bool) {
	return slices.BinarySearchFunc(list, id, func(r Replicaset, id uint64) int { return cmp.Compare(r.ID, id) })
}

// putReplicaset replaces a record that exists.
func (t *replicasetTable) putReplicaset(r Replicaset, revision uint64) {
	r.Revision = revision
	if i, ok := findReplicaset(t.replicasets, r.ID); ok {
		t.replicasets = slices.Clone(t.replicasets)
		t.replicasets[i] = r
	}
}

// requireReplicaset is the replicaset of a command, or a refusal.
func (t *replicasetTable) requireReplicaset(id uint64) (Replicaset, Result) {
	r, ok := t.Replicaset(id)
	if !ok {
		return r, refuse(protocol.StatusNotFound, "there is no replicaset %d", id)
	}
	return r, Result{}
}

// ReplicasetIsReady records that enough instances of a replicaset have come up. It gets
// DefaultWeight unless a user set a weight.
type ReplicasetIsReady struct {
	Replicaset uint64
}

func (*ReplicasetIsReady) kind() Kind { return KindReplicasetIsReady }

func (c *ReplicasetIsReady) fields(f *varint.Fields) { f.Uint(&c.Replicaset) }

func (c *ReplicasetIsReady) apply(s *State) Result {
	set, res := s.requireReplicaset(c.Replicaset)
	switch {
	case res.Status != protocol.StatusOK:
		return res
	case set.Phase == ReplicasetReady:
		return Result{Revision: unchanged}
	case set.Phase != NotReady:
		return refuse(protocol.StatusAborted, "replicaset %s is %s", set.Name, set.Phase)
	}
	set.Phase = ReplicasetReady
	if !set.WeightByUser {
		set.Weight = DefaultWeight
	}
	s.putReplicaset(set, s.revision)
	return Result{}
}

// WeightSet sets a replicaset's weight. A weight that is not from a user does not change one that
// is. PRECONDITION_FAILED once the replicaset is to be expelled.
type WeightSet struct {
	Replicaset uint64
	Weight     uint32 // thousandths, up to a million
	ByUser     bool
}

func (*WeightSet) kind() Kind { return KindWeightSet }

func (c *WeightSet) fields(f *varint.Fields) {
	f.Uint(&c.Replicaset)
	f.Uint32(&c.Weight)
	f.Bool(&c.ByUser)
}

func (c *WeightSet) apply(s *State) Result {
	set, res := s.requireReplicaset(c.Replicaset)
	switch {
	case res.Status != protocol.StatusOK:
		return res
	case c.Weight > maxWeight:
		return refuse(protocol.StatusBadRequest, "weight is %d thousandths; choose up to %d", c.Weight, maxWeight)
	case set.Phase >= ToBeExpelled:
		return refuse(protocol.StatusPreconditionFailed, "replicaset %s is %s; its weight stays 0",
			set.Name, set.Phase)
	case set.WeightByUser && !c.ByUser, set.Weight == c.Weight && set.WeightByUser == c.ByUser:
		return Result{Revision: unchanged}
	}
	set.Weight, set.WeightByUser = c.Weight, c.ByUser
	s.putReplicaset(set, s.revision)
	return Result{}
}

// ReplicasetExpel decides, for good, that a replicaset goes: its last instances are to be expelled,
// so its buckets must move off. ABORTED unless the target state of all its members is Expelled.
type ReplicasetExpel struct {
	Replicaset uint64
}

func (*ReplicasetExpel) kind() Kind { return KindReplicasetExpel }

func (c *ReplicasetExpel) fields(f *varint.Fields) { f.Uint(&c.Replicaset) }

func (c *ReplicasetExpel) apply(s *State) Result {
	set, res := s.requireReplicaset(c.Replicaset)
	switch {
	case res.Status != protocol.StatusOK:
		return res
	case set.Phase >= ToBeExpelled:
		return Result{Revision: unchanged}
	}
	for i := range s.instances {
		if in := &s.instances[i]; in.Replicaset == set.ID && !in.Expelled() && in.Target.Variant != Expelled {
			return refuse(protocol.StatusAborted, "instance %d of replicaset %s stays", in.ID, set.Name)
		}
	}
	set.Phase, set.Weight = ToBeExpelled, 0
	s.putReplicaset(set, s.revision)
	return Result{}
}

// ReplicasetIsExpelled finishes ReplicasetExpel: the replicaset, its remaining instances, restarted
// or not, and its shards are gone. ABORTED while its shards have buckets, or one of the instances
// votes in the meta shard. PRECONDITION_FAILED if it is not to be expelled, or no other instance
// may vote.
type ReplicasetIsExpelled struct {
	Replicaset uint64
	Wall       uint64 // ms since 1970, for display
}

func (*ReplicasetIsExpelled) kind() Kind { return KindReplicasetIsExpelled }

func (c *ReplicasetIsExpelled) fields(f *varint.Fields) {
	f.Uint(&c.Replicaset, &c.Wall)
}

func (c *ReplicasetIsExpelled) apply(s *State) Result {
	set, res := s.requireReplicaset(c.Replicaset)
	switch {
	case res.Status != protocol.StatusOK:
		return res
	case set.Phase == ReplicasetExpelled:
		return Result{Revision: unchanged}
	case set.Phase != ToBeExpelled:
		return refuse(protocol.StatusPreconditionFailed,
			"replicaset %s is %s, not to be expelled; expel its instances first", set.Name, set.Phase)
	case !votersRemain(s, func(i *Instance) bool { return i.Replicaset == set.ID }):
		return refuse(protocol.StatusPreconditionFailed,
			"nobody who may vote is left without replicaset %s; let another instance join first", set.Name)
	}
	if set.ownsBuckets(s) {
		return refuse(protocol.StatusAborted, "replicaset %s still has buckets", set.Name)
	}
	for i := range s.instances {
		if in := &s.instances[i]; in.Replicaset == set.ID && s.hasMetaVote(in.ID) {
			return refuse(protocol.StatusAborted, "instance %d still votes in the meta shard", in.ID)
		}
	}
	s.instances = slices.Clone(s.instances)
	for i := range s.instances {
		in := &s.instances[i]
		if in.Replicaset != set.ID || in.Expelled() {
			continue
		}
		if in.Target.Variant != Expelled {
			in.Target, in.Reason, in.ChangedAt =
				InstanceState{Expelled, in.Current.Incarnation}, ReasonReplicasetExpel, c.Wall
		}
		in.Current = in.Target
		in.Revision = s.revision
	}
	s.shards = slices.DeleteFunc(slices.Clone(s.shards), func(x Shard) bool { return x.Replicaset == set.ID })
	set.Phase = ReplicasetExpelled
	s.putReplicaset(set, s.revision)
	s.mapVersion = s.revision
	return Result{}
}
