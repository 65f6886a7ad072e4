package meta

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// Version is the version of a binary, or of the cluster. The zero Version is unknown.
type Version struct {
	Major uint32
	Minor uint32
	Patch uint32
}

// ParseVersion reads "1.2.3". A leading "v", a missing patch, and a suffix after "-" or "+" are
// allowed.
func ParseVersion(text string) (Version, error) {
	short, _, _ := strings.Cut(strings.TrimPrefix(text, "v"), "+")
	short, _, _ = strings.Cut(short, "-")
	parts := strings.Split(short, ".")
	var n [3]uint32
	if len(parts) < 2 || len(parts) > len(n) {
		return Version{}, fmt.Errorf("%q is no version; write it as 1.2.3", text)
	}
	for i, part := range parts {
		v, err := strconv.ParseUint(part, 10, 32)
		if err != nil {
			return Version{}, fmt.Errorf("%q is no version; write it as 1.2.3", text)
		}
		n[i] = uint32(v)
	}
	return Version{n[0], n[1], n[2]}, nil
}

// String is like 1.2.3.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// Compare goes by major, minor, patch.
func (v Version) Compare(o Version) int {
	if c := v.compareMinor(o); c != 0 {
		return c
	}
	return cmp.Compare(v.Patch, o.Patch)
}

// compareMinor ignores the patch: instances that differ only in it are of one version.
func (v Version) compareMinor(o Version) int {
	if c := cmp.Compare(v.Major, o.Major); c != 0 {
		return c
	}
	return cmp.Compare(v.Minor, o.Minor)
}

func (v *Version) fields(f *varint.Fields) {
	f.Uint32(&v.Major, &v.Minor, &v.Patch)
}

// checkVersion refuses an instance's version unless it suits the cluster's, c, and those of all
// instances but the one with id self.
func (t *instanceTable) checkVersion(c, v, lastOfPreviousMajor Version, self uint64) Result {
	fits := v.Major == c.Major && v.Minor >= c.Minor && v.Minor-c.Minor <= 1
	if v.Major > c.Major && v.Major-c.Major == 1 {
		// Only the newer binary knows which version was the last one before it.
		fits = lastOfPreviousMajor.Major == c.Major && lastOfPreviousMajor.compareMinor(c) == 0 &&
			lastOfPreviousMajor != (Version{}) && v.Minor <= 1
	}
	if !fits && v.compareMinor(c) < 0 {
		return refuse(protocol.StatusPreconditionFailed,
			"version %s is older than the cluster's version %s, which cannot go back; use %d.%d, "+
				"or make a new cluster from a backup of the older version: signalbox cluster restore",
			v, c, c.Major, c.Minor)
	}
	if !fits {
		return refuse(protocol.StatusPreconditionFailed,
			"version %s does not go with the cluster's version %s; use %d.%d or the version that follows it",
			v, c, c.Major, c.Minor)
	}
	seen := []Version{v}
	for i := range t.instances {
		in := &t.instances[i]
		if in.ID == self || in.Expelled() ||
			slices.ContainsFunc(seen, func(o Version) bool { return o.compareMinor(in.Version) == 0 }) {
			continue
		}
		if seen = append(seen, in.Version); len(seen) > 2 {
			return refuse(protocol.StatusPreconditionFailed,
				"version %s would be a third one in the cluster beside %s and %s; bring all instances to one of these first",
				v, seen[1], seen[2])
		}
	}
	return Result{}
}

// ClusterVersion raises the cluster's version. ABORTED while a member has an older one, or while
// the upgrade is held. It changes nothing unless the version is above the cluster's.
type ClusterVersion struct {
	Version Version
}

func (*ClusterVersion) kind() Kind { return KindClusterVersion }

func (c *ClusterVersion) fields(f *varint.Fields) { c.Version.fields(f) }

func (c *ClusterVersion) apply(s *State) Result {
	if !s.Bootstrapped() {
		return notBootstrapped()
	}
	if c.Version.Compare(s.clusterVersion) <= 0 {
		return Result{Revision: unchanged}
	}
	if s.upgradeHeld {
		return refuse(protocol.StatusAborted, "the upgrade is held")
	}
	for i := range s.instances {
		if in := &s.instances[i]; !in.Expelled() && in.Version.Compare(c.Version) < 0 {
			return refuse(protocol.StatusAborted, "instance %d runs version %s, below %s",
				in.ID, in.Version, c.Version)
		}
	}
	s.clusterVersion = c.Version
	return Result{}
}

// UpgradeHold keeps the cluster's version as it is, though all instances may run a newer one, or
// ends that. Until the version rises, instances can go back to the one before.
type UpgradeHold struct {
	Held bool
}

func (*UpgradeHold) kind() Kind { return KindUpgradeHold }

func (c *UpgradeHold) fields(f *varint.Fields) { f.Bool(&c.Held) }

func (c *UpgradeHold) apply(s *State) Result {
	if !s.Bootstrapped() {
		return notBootstrapped()
	}
	if s.upgradeHeld == c.Held {
		return Result{Revision: unchanged}
	}
	s.upgradeHeld = c.Held
	return Result{}
}
