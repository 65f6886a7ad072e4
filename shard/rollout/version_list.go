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

// has says that a version was published and its payload is there.
func (l versionList) has(version uint64) bool {
	i, ok := l.indexOf(version)
	return ok && !l[i].withdrawn
}

func (l versionList) newest() uint64 {
	for i := len(l) - 1; i >= 0; i-- {
		if !l[i].withdrawn {
			return l[i].version
		}
	}
	return 0
}

// drop makes room, and gives the bytes that are free. Versions in use by the locations stay, and
// the newest; others that no location has in its history go first, then those whose neighbours are
// closest.
func (l *versionList) drop(locations []*location) (bytes uint64, ok bool) {
	list := *l
	used := map[uint64]bool{}
	known := map[uint64]bool{}
	for _, l := range locations {
		used[l.target], used[l.stable], used[l.gate.version], used[l.promoted] = true, true, true, true
		for i := range l.history {
			known[l.history[i].version] = true
		}
	}
	best, least := -1, uint64(maxTime)
	for i := range list {
		p := &list[i]
		if used[p.version] || i == len(list)-1 {
			continue
		}
		if !known[p.version] || p.withdrawn {
			best = i
			break
		}
		gap := list[i+1].at
		if i > 0 {
			gap -= list[i-1].at
		}
		if gap < least {
			best, least = i, gap
		}
	}
	if best < 0 {
		return 0, false
	}
	bytes = VersionBytes(len(list[best].payload))
	*l = slices.Delete(list, best, best+1)
	return bytes, true
}
