package meta

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// Variant is the kind of an instance's state. Numbers are stable.
type Variant uint8

const (
	Offline  Variant = 0
	Online   Variant = 1
	Expelled Variant = 2
)

// String is the variant's word.
func (v Variant) String() string {
	switch v {
	case Offline:
		return "Offline"
	case Online:
		return "Online"
	case Expelled:
		return "Expelled"
	}
	return "Unknown"
}

// InstanceState is a variant and an incarnation. Every start raises the incarnation: a restarted
// process shows as current != target.
type InstanceState struct {
	Variant     Variant
	Incarnation uint64
}

// String is like Online(1).
func (s InstanceState) String() string { return fmt.Sprintf("%s(%d)", s.Variant, s.Incarnation) }

// Instance is the record of one server process. Records of expelled instances are kept: their
// processes stop when they read them.
type Instance struct {
	ID          uint64 // never reused
	UUID        string // chosen by the process before it joined, unique
	Name        string // unique among those that are not Expelled
	Address     string // where clients connect
	RaftAddress string // where other instances connect
	Tier        uint8
	Replicaset  uint64 // changed by InstanceReassign
	Domain      []Label
	Version     Version // of its binary
	Current     InstanceState
	Target      InstanceState
	Reason      string // of the last change of Target
	ChangedAt   uint64 // wall clock of that, ms since 1970, for display
	Drained     bool   // it stays Online without leaderships and votes, until its next start
	Revision    uint64 // the machine's revision of the last change to this record
}

// Expelled reports whether the instance is no longer a member.
func (i *Instance) Expelled() bool { return i.Current.Variant == Expelled }

// instanceTable has the instances. Its slice is replaced whole by a change, as those of the other
// tables are.
type instanceTable struct {
	instances    []Instance // in order of id
	nextInstance uint64     // the last id given out
}

// Instances in order of id.
func (t *instanceTable) Instances() []Instance { return t.instances }

// InstanceByName finds the instance with a name that is not Expelled.
func (t *instanceTable) InstanceByName(name string) (Instance, bool) {
	return first(t.instances, func(i *Instance) bool { return i.Name == name && !i.Expelled() })
}

// InstanceByUUID finds the instance with a UUID, Expelled or not.
func (t *instanceTable) InstanceByUUID(uuid string) (Instance, bool) {
	return first(t.instances, func(i *Instance) bool { return i.UUID == uuid })
}

// Instance finds one.
func (t *instanceTable) Instance(id uint64) (Instance, bool) {
	i, ok := findInstance(t.instances, id)
	if !ok {
		return Instance{}, false
	}
	return t.instances[i], true
}

// requireInstance is the instance of a command, or a refusal.
func (t *instanceTable) requireInstance(id uint64) (Instance, Result) {
	i, ok := t.Instance(id)
	if !ok {
		return i, refuse(protocol.StatusNotFound, "there is no instance %d", id)
	}
	return i, Result{}
}

// putInstance replaces a record that exists.
func (t *instanceTable) putInstance(i Instance, revision uint64) {
	i.Revision = revision
	if at, ok := findInstance(t.instances, i.ID); ok {
		t.instances = slices.Clone(t.instances)
		t.instances[at] = i
	}
}

// stayingMembers are the members of a replicaset that are not expelled, and are not to be.
func (t *instanceTable) stayingMembers(replicaset uint64) (list []Instance) {
	for _, i := range t.instances {
		if i.Replicaset == replicaset && i.Target.Variant != Expelled {
			list = append(list, i)
		}
	}
	return list
}

func findInstance(list []Instance, id uint64) (int, bool) {
	return slices.BinarySearchFunc(list, id, func(i Instance, id uint64) int { return cmp.Compare(i.ID, id) })
}

// InstanceAddress records where an instance listens since its last start. ABORTED unless Expected
// is the record's revision: the command may be a late one of an earlier run of the process.
type InstanceAddress struct {
	Instance    uint64
	Expected    uint64
	Address     string
	RaftAddress string
}

func (*InstanceAddress) kind() Kind { return KindInstanceAddress }

func (c *InstanceAddress) fields(f *varint.Fields) {
	f.Uint(&c.Instance, &c.Expected)
	f.Text(&c.Address, maxAddress)
	f.Text(&c.RaftAddress, maxAddress)
}

func (c *InstanceAddress) apply(s *State) Result {
	old, res := s.requireInstance(c.Instance)
	if res.Status != protocol.StatusOK {
		return res
	}
	if old.Address == c.Address && old.RaftAddress == c.RaftAddress {
		return Result{Revision: unchanged}
	}
	if old.Revision != c.Expected {
		return refuse(protocol.StatusAborted, "instance %d was changed in the meantime; look again and retry",
			c.Instance)
	}
	if other, taken := s.raftAddressTaken(c.RaftAddress, old.ID); taken {
		return addressTaken(c.RaftAddress, other)
	}
	old.Address, old.RaftAddress = c.Address, c.RaftAddress
	s.putInstance(old, s.revision)
	s.mapVersion = s.revision
	return Result{}
}
