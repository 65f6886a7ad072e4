package meta

import (
	"fmt"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// Reasons for a change of an instance's target. Failure detectors write sentences instead.
const (
	ReasonJoin            = "join"
	ReasonWakeup          = "wakeup"
	ReasonShutdown        = "shutdown"
	ReasonAutoOnline      = "auto-online"
	ReasonExpel           = "expel"
	ReasonReplicasetExpel = "replicaset expel"
)

const forceHint = "; --force expels it all the same"

// InstanceUpdate sets an instance's target state. Only the governor sets the current state
// (InstanceCurrent).
//
// Online raises the incarnation every time, so that a restarted process is noticed; repeat it with
// the same op id. Offline and Expelled may be repeated. An instance whose target is Expelled is not
// made Offline, but a start of its process makes it Online.
//
// NOT_FOUND: no such instance. ABORTED: Expected is not the record's revision. PRECONDITION_FAILED:
// it is expelled, its version or failure domain is unsuitable, it may not be expelled so (the
// message says where Force would help), or it is needed (IfNotNeeded).
type InstanceUpdate struct {
	Instance uint64
	Expected uint64 // the record's revision; 0 for any
	Target   Variant
	Reason   string // for display; see the Reason constants
	Force    bool   // expel it even if it is not Offline, or leads shards
	// Start: a process reports its own start. Address, RaftAddress, Domain, Version and
	// LastOfPreviousMajor are then its present values; otherwise they are ignored. Target must be
	// Online.
	Start               bool
	Address             string
	RaftAddress         string
	Domain              []Label
	Version             Version
	LastOfPreviousMajor Version // see Join
	Wall                uint64  // ms since 1970, for display
	// IfNotNeeded makes it Offline only if each shard in which it is one of three or more voters
	// keeps a majority of voters that are Online and are to stay so. The log orders several such
	// commands: instances that stop at the same time do not rely on each other.
	IfNotNeeded bool
}

func (*InstanceUpdate) kind() Kind { return KindInstanceUpdate }

func (c *InstanceUpdate) fields(f *varint.Fields) {
	f.Uint(&c.Instance, &c.Expected)
	varint.Byte(f, &c.Target)
	reason := c.Reason[:min(len(c.Reason), maxReason)]
	f.Text(&reason, maxReason)
	c.Reason = reason
	f.Bool(&c.Force, &c.Start)
	f.Text(&c.Address, maxAddress)
	f.Text(&c.RaftAddress, maxAddress)
	varint.List(f, &c.Domain, maxLabels, (*Label).fields)
	c.Version.fields(f)
	c.LastOfPreviousMajor.fields(f)
	f.Uint(&c.Wall)
	f.Bool(&c.IfNotNeeded)
}

func (c *InstanceUpdate) apply(s *State) Result {
	i, res := s.requireInstance(c.Instance)
	if res.Status != protocol.StatusOK {
		return res
	}
	switch {
	case c.Target > Expelled || (c.Start && c.Target != Online) || !canonical(c.Domain):
		return refuse(protocol.StatusBadRequest,
			"an instance that starts is to be Online, with a failure domain in order")
	case c.Target == Expelled && i.Target.Variant == Expelled:
		return Result{Revision: unchanged, Instance: i.ID}
	case i.Expelled():
		return refuse(protocol.StatusPreconditionFailed,
			"cannot update expelled instance `%s`; to join again, start with an empty folder", i.Name)
	case c.Target == Offline && i.Target.Variant != Online:
		return Result{Revision: unchanged, Instance: i.ID} // Expelled stays
	case c.Expected != 0 && c.Expected != i.Revision:
		return refuse(protocol.StatusAborted, "instance %d was changed in the meantime; look again and retry",
			c.Instance)
	}
	if c.IfNotNeeded {
		if why, _ := s.NeededAmongOnline(i.ID); why != "" {
			return refuse(protocol.StatusPreconditionFailed, "instance `%s` is needed: %s", i.Name, why)
		}
	}
	if c.Target == Expelled {
		if res := i.mayBeExpelled(s, c.Force); res.Status != protocol.StatusOK {
			return res
		}
	}
	if c.Start {
		if res := c.applyStart(s, &i); res.Status != protocol.StatusOK {
			return res
		}
	}
	if c.Target == Online {
		i.Target = InstanceState{Online, i.Target.Incarnation + 1}
	} else {
		i.Target = InstanceState{c.Target, i.Current.Incarnation}
	}
	i.Reason, i.ChangedAt = c.Reason, c.Wall
	s.putInstance(i, s.revision)
	return Result{Instance: i.ID}
}

// applyStart records what a starting process reports.
func (c *InstanceUpdate) applyStart(s *State, i *Instance) Result {
	res := s.checkVersion(s.clusterVersion, c.Version, c.LastOfPreviousMajor, i.ID)
	if res.Status != protocol.StatusOK {
		return res
	}
	if !slices.Equal(c.Domain, i.Domain) { // a new key of another member does not stop a restart with the old domain
		if res := s.checkDomainKeys(c.Domain); res.Status != protocol.StatusOK {
			return res
		}
	}
	if other, taken := s.raftAddressTaken(c.RaftAddress, i.ID); taken {
		return addressTaken(c.RaftAddress, other)
	}
	if i.Address != c.Address || i.RaftAddress != c.RaftAddress {
		s.mapVersion = s.revision
	}
	i.Address, i.RaftAddress, i.Domain, i.Version = c.Address, c.RaftAddress, c.Domain, c.Version
	i.Drained = false
	return Result{}
}

// mayBeExpelled refuses an expel that is not allowed.
func (i *Instance) mayBeExpelled(s *State, force bool) Result {
	if !votersRemain(s, func(o *Instance) bool { return o.ID == i.ID }) {
		return refuse(protocol.StatusPreconditionFailed,
			"instance '%s' is the only one that is left, or that may vote; let another one join first", i.Name)
	}
	if force {
		return Result{}
	}
	if v := i.Current.Variant; v != Offline || i.Target.Variant != Offline {
		if v == Offline {
			v = i.Target.Variant
		}
		return refuse(protocol.StatusPreconditionFailed,
			"attempt to expel instance '%s' which is not Offline, but %s; stop it first, or if it is silent wait until it is Offline: "+
				"--offline-after after its last sign of life, 5s by default%s", i.Name, v, forceHint)
	}
	if s.leadsShards(i.ID) {
		return refuse(protocol.StatusPreconditionFailed,
			"attempt to expel replicaset master '%s'; let another instance of its replicaset lead first%s",
			i.Name, forceHint)
	}
	return Result{}
}

// NeededAmongOnline names a shard that would have no majority of Online voters without an instance;
// empty if there is none. Groups of one or two voters do not count: they never survive the loss of
// a voter. counts reports whether the instance votes in any other group.
func (s *State) NeededAmongOnline(instance uint64) (why string, counts bool) {
	for _, x := range slices.Concat(s.Shards(), []Shard{s.MetaShard()}) {
		if own, ok := x.On(instance); !ok || own.Role != RoleVoter {
			continue
		}
		voters, others := 0, 0
		for _, r := range x.Replicas {
			if r.Role != RoleVoter {
				continue
			}
			voters++
			i, _ := s.Instance(r.Instance)
			if i.ID != instance && i.Target.Variant == Online && i.Current == i.Target {
				others++
			}
		}
		counts = counts || voters >= 3
		if why == "" && voters >= 3 && others <= voters/2 {
			why = fmt.Sprintf("without it, %d of %d voters of shard %d would be Online", others, voters, x.ID)
		}
	}
	return why, counts
}

// votersRemain reports whether instances which stay and may vote are left without those that gone
// names.
func votersRemain(s *State, gone func(i *Instance) bool) bool {
	for j := range s.instances {
		o := &s.instances[j]
		if t, ok := s.Tier(o.Tier); ok && t.CanVote && !o.Expelled() && o.Target.Variant != Expelled && !gone(o) {
			return true
		}
	}
	return false
}

// InstanceCurrent sets an instance's current state to its target state. Only the governor proposes
// it. ABORTED if the target is another one by now. ABORTED for Expelled while the instance has a
// vote in the meta shard, leads shards, or is the last of its replicaset (ReplicasetIsExpelled).
type InstanceCurrent struct {
	Instance uint64
	State    InstanceState
}

func (*InstanceCurrent) kind() Kind { return KindInstanceCurrent }

func (c *InstanceCurrent) fields(f *varint.Fields) {
	f.Uint(&c.Instance)
	c.State.fields(f)
}

func (c *InstanceCurrent) apply(s *State) Result {
	i, res := s.requireInstance(c.Instance)
	if res.Status != protocol.StatusOK {
		return res
	}
	switch {
	case i.Current == c.State:
		return Result{Revision: unchanged, Instance: i.ID}
	case i.Target != c.State:
		return refuse(protocol.StatusAborted, "instance %d shall be %s, not %s; look again and retry",
			i.ID, i.Target, c.State)
	}
	if c.State.Variant == Expelled {
		alone := !slices.ContainsFunc(s.instances,
			func(o Instance) bool { return o.Replicaset == i.Replicaset && o.ID != i.ID && !o.Expelled() })
		switch {
		case s.hasMetaVote(i.ID):
			return refuse(protocol.StatusAborted, "instance %d still votes in the meta shard", i.ID)
		case alone:
			return refuse(protocol.StatusAborted,
				"instance %d is the last of its replicaset, which is to be expelled with it", i.ID)
		case s.leadsShards(i.ID):
			return refuse(protocol.StatusAborted, "instance %d still leads shards, or is to", i.ID)
		}
		s.mapVersion = s.revision
	}
	i.Current = c.State
	s.putInstance(i, s.revision)
	return Result{Instance: i.ID}
}

// InstanceDrain decides that an instance hands its leaderships and votes to others, as far as
// others can take them, and stays Online; or that it may have some again. Its next start ends the
// drain. NOT_FOUND: no such instance; PRECONDITION_FAILED: it is expelled.
type InstanceDrain struct {
	Instance uint64
	Drained  bool
}

func (*InstanceDrain) kind() Kind { return KindInstanceDrain }

func (c *InstanceDrain) fields(f *varint.Fields) {
	f.Uint(&c.Instance)
	f.Bool(&c.Drained)
}

func (c *InstanceDrain) apply(s *State) Result {
	i, res := s.requireInstance(c.Instance)
	switch {
	case res.Status != protocol.StatusOK:
		return res
	case i.Expelled():
		return refuse(protocol.StatusPreconditionFailed, "cannot drain expelled instance `%s`", i.Name)
	case i.Drained == c.Drained:
		return Result{Revision: unchanged, Instance: i.ID}
	}
	i.Drained = c.Drained
	s.putInstance(i, s.revision)
	return Result{Instance: i.ID}
}
