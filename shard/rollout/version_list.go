package rollout

import "slices"

// published is a version someone published. Payload is never changed in place.
type published struct {
	version   uint64
	at, wall  uint64
	payload   []byte
	withdrawn bool
}

// versionList is the published versions that are kept, in order.
type versionList []published

func (l versionList) indexOf(version uint64) (int, bool) {
	return slices.BinarySearchFunc(l, version, func(p published, v uint64) int {
		if p.version < v {
			return -1
		}
		if p.version > v {
			return 1
		}
		return 0
	})
}

// has reports whether a version was published and its payload is there.
func (l versionList) has(version uint64) bool {
	i, ok := l.indexOf(version)
	return ok && !l[i].withdrawn
}

// drop makes room, and gives the bytes that are free.
func (l *versionList) drop(locations []*location) (bytes uint64, ok bool) {
	i := l.toDrop(locations)
	if i < 0 {
		return 0, false
	}
	bytes = VersionBytes(len((*l)[i].payload))
	*l = slices.Delete(*l, i, i+1)
	return bytes, true
}

// toDrop is the index of the version that makes room, -1 none. Versions in use by the locations
// stay, and the newest; others that no location has in its history go first, then those whose
// neighbours are closest.
func (l versionList) toDrop(locations []*location) int {
	used, known := make([]bool, len(l)), make([]bool, len(l))
	mark := func(list []bool, version uint64) {
		if i, ok := l.indexOf(version); ok {
			list[i] = true
		}
	}
	for _, x := range locations {
		for _, v := range [...]uint64{x.target, x.stable, x.gate.version, x.promoted} {
			mark(used, v)
		}
		for i := range x.history {
			mark(known, x.history[i].version)
		}
	}
	best, least := -1, uint64(maxTime)
	for i := range l {
		if used[i] || i == len(l)-1 {
			continue
		}
		if !known[i] || l[i].withdrawn {
			return i
		}
		gap := l[i+1].at
		if i > 0 {
			gap -= l[i-1].at
		}
		if gap < least {
			best, least = i, gap
		}
	}
	return best
}
