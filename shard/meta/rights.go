package meta

import (
	"cmp"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// RightBits are what an identity may do.
type RightBits uint8

const (
	Read  RightBits = 1 << iota // start a session, describe, watch
	Use                         // create, update, acquire, release
	Admin                       // delete, alter, drop

	AllRights = Read | Use | Admin
)

// maxRights and maxIdentity are part of format version 1.
const (
	maxRights   = 10_000
	maxIdentity = 256
)

// Right is an entry of the rights list.
type Right struct {
	Prefix   string // a path, and everything below it; "" is everything
	Identity string // "" is the anonymous identity
	Rights   RightBits
}

func (r *Right) order(o *Right) int {
	if c := strings.Compare(r.Prefix, o.Prefix); c != 0 {
		return c
	}
	return strings.Compare(r.Identity, o.Identity)
}

// RightsList in order of prefix and identity, and the revision of its last change.
func (x *access) RightsList() ([]Right, uint64) { return x.rights, x.rightsRevision }

// Rights are what an identity may do at a path: its entry with the longest prefix decides. While
// auth is off every identity may do everything.
func (x *access) Rights(identity, path string) RightBits {
	if !x.authOn {
		return AllRights
	}
	for prefix := path; ; prefix = Parent(prefix) {
		key := Right{Prefix: prefix, Identity: identity}
		if i, ok := slices.BinarySearchFunc(x.rights, key, func(a, b Right) int { return a.order(&b) }); ok {
			return x.rights[i].Rights
		}
		if !strings.Contains(prefix, "/") {
			return 0
		}
	}
}

// RightsPut adds or replaces the entry of a prefix and identity. ABORTED unless Expected is the
// list's revision; 0 for any.
type RightsPut struct {
	Expected uint64
	Right
}

func (*RightsPut) kind() Kind { return KindRightsPut }

func (c *RightsPut) fields(f *varint.Fields) {
	f.Uint(&c.Expected)
	c.Right.fields(f)
}

func (r *Right) fields(f *varint.Fields) {
	f.Text(&r.Prefix, protocol.MaxPathLen)
	f.Text(&r.Identity, maxIdentity)
	varint.Byte(f, &r.Rights)
}

func (c *RightsPut) apply(s *State) Result {
	switch {
	case !s.Bootstrapped():
		return notBootstrapped()
	case c.Expected != 0 && c.Expected != s.rightsRevision:
		return rightsChanged()
	case c.Prefix != "" && !wellFormed(c.Prefix):
		return refuse(protocol.StatusBadRequest, "%q is no path; write it as /segment/segment, or nothing for all",
			c.Prefix)
	case c.Rights&^AllRights != 0:
		return refuse(protocol.StatusBadRequest, "unknown bits in rights %#x", byte(c.Rights))
	}
	i, ok := slices.BinarySearchFunc(s.rights, c.Right, func(a, b Right) int { return a.order(&b) })
	switch {
	case ok && s.rights[i] == c.Right:
		return Result{Revision: unchanged}
	case ok:
		s.rights = slices.Clone(s.rights)
		s.rights[i] = c.Right
	case len(s.rights) >= maxRights:
		return refuse(protocol.StatusPreconditionFailed, "the rights list has its %d entries; remove some first",
			maxRights)
	default:
		s.rights = slices.Insert(slices.Clone(s.rights), i, c.Right)
	}
	s.rightsRevision, s.authRevision = s.revision, s.revision
	return s.checkAdministered()
}

func rightsChanged() Result {
	return refuse(protocol.StatusAborted, "the rights were changed in the meantime; look again and retry")
}

// RightsRemove removes the entry of a prefix and identity; NOT_FOUND if there is none. Expected as
// in RightsPut.
type RightsRemove struct {
	Expected uint64
	Prefix   string
	Identity string
}

func (*RightsRemove) kind() Kind { return KindRightsRemove }

func (c *RightsRemove) fields(f *varint.Fields) {
	f.Uint(&c.Expected)
	f.Text(&c.Prefix, protocol.MaxPathLen)
	f.Text(&c.Identity, maxIdentity)
}

func (c *RightsRemove) apply(s *State) Result {
	if c.Expected != 0 && c.Expected != s.rightsRevision {
		return rightsChanged()
	}
	key := Right{Prefix: c.Prefix, Identity: c.Identity}
	i, ok := slices.BinarySearchFunc(s.rights, key, func(a, b Right) int { return a.order(&b) })
	if !ok {
		return refuse(protocol.StatusNotFound, "identity %q has no grant at %s", c.Identity, cmp.Or(c.Prefix, "/"))
	}
	s.rights = slices.Delete(slices.Clone(s.rights), i, i+1)
	s.rightsRevision, s.authRevision = s.revision, s.revision
	return s.checkAdministered()
}
