package meta

import (
	"cmp"
	"fmt"
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

// rulesSince is the first version with the present rules of data shards. Version 0.1 has others
// under the same format of batches: in one group, its copies and this binary's would come to
// differ.
var rulesSince = Version{0, 2, 0}

// CheckRules refuses a process beside instances whose data shards follow other rules. Version is
// that of the process, and self its instance. The process asks before it registers and before it
// has a data shard: the log cannot refuse it, since members of the other version would not.
// PRECONDITION_FAILED.
func (s *State) CheckRules(version Version, self uint64) error {
	older := version.compareMinor(rulesSince) < 0
	for i := range s.instances {
		in := &s.instances[i]
		if in.ID == self || in.Expelled() || (in.Version.compareMinor(rulesSince) < 0) == older {
			continue
		}
		return protocol.Errorf(protocol.StatusPreconditionFailed,
			"version %s cannot share data shards with version %s, which instance '%s' runs: their rules differ; "+
				"run the older version on all instances, back the cluster up with it, and restore the backup with the newer one",
			version, in.Version, in.Name)
	}
	return nil
}
