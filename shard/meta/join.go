package meta

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// Join makes a process an instance of the cluster, Offline(0) as current and target state, in a
// replicaset that is created if necessary. Result.Instance is its id. It may be repeated with the
// same UUID until the instance's target is Online.
//
// PRECONDITION_FAILED: another cluster, an unsuitable version or failure domain, a replicaset that
// it cannot be in, no room. ALREADY_EXISTS: the name, raft address or UUID is another instance's.
// NOT_FOUND: no such tier.
type Join struct {
	UUID                string // 1..64 bytes, chosen and stored by the process before it asks
	Name                string // empty: made from the replicaset's name
	Replicaset          string // name; empty: see chooseReplicaset
	Address             string // where clients connect
	RaftAddress         string // unique among instances that are not Expelled
	Tier                string // name; empty: the first
	Domain              []Label
	Version             Version
	LastOfPreviousMajor Version // the last version of the previous major version, known to the binary; zero for none
	Cluster             string  // id or name of the cluster to join; empty for any
	Wall                uint64  // ms since 1970, for display
}

func (*Join) kind() Kind { return KindJoin }

func (c *Join) fields(f *varint.Fields) {
	f.Text(&c.UUID, maxUUID)
	f.Text(&c.Name, maxName)
	f.Text(&c.Replicaset, maxName)
	f.Text(&c.Address, maxAddress)
	f.Text(&c.RaftAddress, maxAddress)
	f.Text(&c.Tier, maxName)
	varint.List(f, &c.Domain, maxLabels, (*Label).fields)
	c.Version.fields(f)
	c.LastOfPreviousMajor.fields(f)
	f.Text(&c.Cluster, maxName)
	f.Uint(&c.Wall)
}

func (c *Join) apply(s *State) Result {
	switch {
	case !s.Bootstrapped():
		return notBootstrapped()
	case c.UUID == "":
		return refuse(protocol.StatusBadRequest, "an instance needs a uuid of its own to join")
	case !canonical(c.Domain):
		return badDomain()
	case c.Cluster != "" && c.Cluster != s.cluster && c.Cluster != s.clusterName:
		return refuse(protocol.StatusPreconditionFailed,
			"cluster mismatch: the instance wants to join %q, but this is %q; check its peers and its cluster's name",
			c.Cluster, clusterLabel(s))
	}
	if res := s.checkVersion(s.clusterVersion, c.Version, c.LastOfPreviousMajor, 0); res.Status != protocol.StatusOK {
		return res
	}
	if known, ok := s.InstanceByUUID(c.UUID); ok {
		return c.repeat(s, &known)
	}
	t, ok := s.TierByName(c.Tier)
	if c.Tier == "" {
		t, ok = s.tiers[0], true
	}
	if !ok {
		return refuse(protocol.StatusNotFound,
			"there is no tier %q; the tiers are those that the cluster was made with", c.Tier)
	}
	set, res := c.chooseReplicaset(s, &t)
	if res.Status != protocol.StatusOK {
		return res
	}
	if res := s.checkDomainKeys(c.Domain); res.Status != protocol.StatusOK {
		return res
	}
	if _, taken := s.InstanceByName(c.Name); taken && c.Name != "" {
		return refuse(protocol.StatusAlreadyExists,
			"`%s` is already joined; give the new instance another name, or expel that one first", c.Name)
	}
	if other, taken := s.raftAddressTaken(c.RaftAddress, 0); taken {
		return addressTaken(c.RaftAddress, other)
	}
	if !makeRoom(s) {
		return refuse(protocol.StatusPreconditionFailed, "the cluster has its %d instances; expel some first",
			maxInstances)
	}
	if set.ID == 0 {
		s.nextReplicaset++
		// its first instance's UUID is unique
		set.ID, set.UUID, set.Tier, set.Revision = s.nextReplicaset, c.UUID, t.ID, s.revision
		s.replicasets = append(slices.Clip(s.replicasets), set)
	}
	name := c.Name
	if name == "" {
		name = s.freeInstanceName(set.Name)
	}
	s.nextInstance++
	s.instances = append(slices.Clip(s.instances), Instance{
		ID: s.nextInstance, UUID: c.UUID, Name: name, Address: c.Address,
		RaftAddress: c.RaftAddress, Tier: t.ID, Replicaset: set.ID,
		Domain: c.Domain, Version: c.Version, ChangedAt: c.Wall, Revision: s.revision,
	})
	s.mapVersion = s.revision
	return Result{Instance: s.nextInstance}
}

func clusterLabel(s *State) string { return cmp.Or(s.clusterName, s.cluster) }

// repeat answers a process that asks again because it got no answer. It must ask for the same.
func (c *Join) repeat(s *State, i *Instance) Result {
	set, _ := s.Replicaset(i.Replicaset)
	t, _ := s.Tier(i.Tier)
	differs := ""
	switch {
	case i.Expelled():
		return refuse(protocol.StatusPreconditionFailed,
			"instance `%s` is expelled from the cluster; to join again, start with an empty folder", i.Name)
	case i.Current.Variant != Offline || i.Target.Variant != Offline:
		return refuse(protocol.StatusAlreadyExists,
			"instance `%s` with this uuid is not in Offline state, but %s, to be %s; each instance needs a folder of its own",
			i.Name, i.Current, i.Target)
	case c.Name != "" && c.Name != i.Name:
		differs = "name"
	case c.Replicaset != "" && c.Replicaset != set.Name:
		differs = "replicaset"
	case c.Tier != "" && c.Tier != t.Name:
		differs = "tier"
	case !slices.Equal(c.Domain, i.Domain):
		differs = "failure domain"
	case c.Version != i.Version:
		differs = "version"
	case c.RaftAddress != i.RaftAddress:
		differs = "raft address"
	default:
		return Result{Revision: unchanged, Instance: i.ID}
	}
	return refuse(protocol.StatusPreconditionFailed,
		"instance `%s` with this uuid joined with a different %s; start it as before, or with an empty folder",
		i.Name, differs)
}

// chooseReplicaset is the replicaset for a new instance of a tier; id 0 if it must be created.
//
// A given name is taken, full or not. So is the replicaset in the instance's name, if it can be
// joined: a_1 means replicaset a. Otherwise it is the first by name that has room, and no member
// that shares a failure domain with the new instance.
func (c *Join) chooseReplicaset(s *State, t *Tier) (Replicaset, Result) {
	if c.Replicaset != "" {
		set, ok := s.ReplicasetByName(c.Replicaset)
		switch {
		case !ok:
			return Replicaset{Name: c.Replicaset}, Result{}
		case set.Tier != t.ID:
			own, _ := s.Tier(set.Tier)
			return set, refuse(protocol.StatusPreconditionFailed,
				"tier mismatch: the instance is of tier %s, but replicaset %s of tier %s; choose another replicaset",
				t.Name, set.Name, own.Name)
		case set.Phase == ToBeExpelled:
			return set, refuse(protocol.StatusPreconditionFailed,
				"cannot join replicaset which is being expelled; choose another one than %s", set.Name)
		}
		return set, Result{}
	}
	if base, ok := replicasetOf(c.Name); ok {
		if set, ok := s.ReplicasetByName(base); ok && set.Tier == t.ID && set.Phase != ToBeExpelled {
			return set, Result{}
		}
	}
	var best Replicaset
	for _, set := range s.replicasets {
		if set.Tier != t.ID || set.Phase >= ToBeExpelled || (best.ID != 0 && set.Name > best.Name) {
			continue
		}
		members := s.stayingMembers(set.ID)
		apart := !slices.ContainsFunc(members, func(m Instance) bool { return Intersect(m.Domain, c.Domain) })
		if len(members) < int(t.ReplicationFactor) && apart {
			best = set
		}
	}
	if best.ID != 0 {
		return best, Result{}
	}
	return Replicaset{Name: freeName(t.Name,
		func(name string) bool { _, taken := s.ReplicasetByName(name); return taken })}, Result{}
}

// replicasetOf is the name before _ and a number.
func replicasetOf(instance string) (string, bool) {
	i := strings.LastIndexByte(instance, '_')
	if i <= 0 || i == len(instance)-1 || strings.Trim(instance[i+1:], "0123456789") != "" {
		return "", false
	}
	return instance[:i], true
}

func (t *instanceTable) freeInstanceName(set string) string {
	return freeName(set, func(name string) bool { _, taken := t.InstanceByName(name); return taken })
}

// freeName is the base with the smallest number that is not taken.
func freeName(base string, taken func(string) bool) string {
	for n := 1; ; n++ {
		if name := fmt.Sprintf("%s_%d", base, n); !taken(name) {
			return name
		}
	}
}

// checkDomainKeys refuses a failure domain that lacks a key of another member.
func (t *instanceTable) checkDomainKeys(domain []Label) Result {
	var missing []string
	for i := range t.instances {
		if t.instances[i].Expelled() {
			continue
		}
		for _, l := range t.instances[i].Domain {
			if _, ok := domainValue(domain, l.Key); !ok {
				missing = append(missing, l.Key)
			}
		}
	}
	if len(missing) == 0 {
		return Result{}
	}
	slices.Sort(missing)
	return refuse(protocol.StatusPreconditionFailed,
		"missing failure domain names: %s; every instance must have those that another one has",
		strings.Join(slices.Compact(missing), ", "))
}

// raftAddressTaken is the name of the member with the address, unless it is self.
func (t *instanceTable) raftAddressTaken(address string, self uint64) (string, bool) {
	for i := range t.instances {
		if in := &t.instances[i]; address != "" && in.RaftAddress == address && in.ID != self && !in.Expelled() {
			return in.Name, true
		}
	}
	return "", false
}

func addressTaken(address, other string) Result {
	return refuse(protocol.StatusAlreadyExists,
		"raft address %s is that of instance `%s`; expel it first if it is gone for good", address, other)
}

// makeRoom forgets the oldest expelled instance and replicaset when there is no room for another.
// Their ids are never reused.
func makeRoom(s *State) bool {
	if len(s.instances) >= maxInstances {
		i := slices.IndexFunc(s.instances, func(i Instance) bool { return i.Expelled() && !s.hosts(i.ID) })
		if i < 0 {
			return false
		}
		s.instances = slices.Delete(slices.Clone(s.instances), i, i+1)
	}
	if len(s.replicasets) >= maxInstances {
		i := slices.IndexFunc(s.replicasets, func(r Replicaset) bool {
			return r.Phase == ReplicasetExpelled &&
				!slices.ContainsFunc(s.instances, func(i Instance) bool { return i.Replicaset == r.ID })
		})
		if i < 0 {
			return false
		}
		s.replicasets = slices.Delete(slices.Clone(s.replicasets), i, i+1)
	}
	return true
}
