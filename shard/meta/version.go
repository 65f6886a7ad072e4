package meta

import (
	"fmt"
	"strconv"
	"strings"
)

// Version is the version of a binary, or of the cluster. The zero Version is one that nobody said.
type Version struct {
	Major uint32
	Minor uint32
	Patch uint32
}

// ParseVersion reads "1.2.3", with "v" before it or not, the patch left out or not, and
// "-something" or "+something" after it or not.
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
	return compare(v.Patch, o.Patch)
}

// compareMinor leaves the patch out: instances that differ in nothing else are of one version.
func (v Version) compareMinor(o Version) int {
	if c := compare(v.Major, o.Major); c != 0 {
		return c
	}
	return compare(v.Minor, o.Minor)
}

func (v Version) append(b []byte) []byte {
	b = appendUint(b, uint64(v.Major))
	b = appendUint(b, uint64(v.Minor))
	return appendUint(b, uint64(v.Patch))
}

func (r *reader) version() Version { return Version{r.uint32(), r.uint32(), r.uint32()} }
