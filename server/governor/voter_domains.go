package governor

import (
	"cmp"
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// survivableKeys are the keys of failure domains that the voters of a group on these instances can
// be spread over: no domain has more voters than the group may lose. All keys hold at once. Those
// with the fewest values are taken first, because their domains are the largest; ties go by name.
func survivableKeys(instances [][]meta.Label) (keys []string) {
	voters, most := VoterCount(len(instances)), Tolerance(len(instances))
	values := make(map[string]map[string]bool)
	for _, domain := range instances {
		for _, l := range domain {
			if values[l.Key] == nil {
				values[l.Key] = make(map[string]bool)
			}
			values[l.Key][l.Value] = true
		}
	}
	if most == 0 {
		return nil
	}
	all := slices.SortedFunc(maps.Keys(values), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(values[a]), len(values[b])), cmp.Compare(a, b))
	})
	for _, key := range all {
		if more := append(slices.Clip(keys), key); spreadVoters(instances, voters, most, more) != nil {
			keys = more
		}
	}
	slices.Sort(keys)
	return keys
}

// spreadVoters chooses voters instances such that no domain of the keys has more than most of them.
// It prefers the first ones. It returns their indexes, in order, or nil if no choice fits.
func spreadVoters(instances [][]meta.Label, voters, most int, keys []string) []int {
	s := voterSearch{most: most, chosen: make(map[meta.Label]int)}
	other := func(l meta.Label) bool { return !slices.Contains(keys, l.Key) }
	for _, domain := range instances {
		s.labels = append(s.labels, slices.DeleteFunc(slices.Clone(domain), other))
	}
	s.keys = keys
	return s.choose(0, voters)
}

// voterSearch tries choices of voters one after the other.
type voterSearch struct {
	labels [][]meta.Label // of each instance, of the keys alone
	keys   []string
	most   int
	chosen map[meta.Label]int // how many of those chosen so far have the label
}

// choose chooses voters more instances among those from index from on.
func (s *voterSearch) choose(from, voters int) []int {
	if voters == 0 {
		return []int{}
	}
	var tried [][]meta.Label
	for i := from; i < len(s.labels) && s.enough(i, voters); i++ {
		own := s.labels[i]
		same := func(other []meta.Label) bool { return slices.Equal(own, other) }
		full := func(l meta.Label) bool { return s.chosen[l] >= s.most }
		if slices.ContainsFunc(own, full) || slices.ContainsFunc(tried, same) {
			continue
		}
		tried = append(tried, own)
		s.count(own, 1)
		if rest := s.choose(i+1, voters-1); rest != nil {
			return append([]int{i}, rest...)
		}
		s.count(own, -1)
	}
	return nil
}

func (s *voterSearch) count(labels []meta.Label, n int) {
	for _, l := range labels {
		s.chosen[l] += n
	}
}

// enough reports whether each key alone has room for voters of the instances from index from on.
func (s *voterSearch) enough(from, voters int) bool {
	there := make(map[meta.Label]int)
	for _, labels := range s.labels[from:] {
		for _, l := range labels {
			there[l]++
		}
	}
	tooMany := make(map[string]int) // of each key: instances for which their domain has no room
	for l, n := range there {
		tooMany[l.Key] += max(0, n-(s.most-s.chosen[l]))
	}
	for _, key := range s.keys {
		if len(s.labels)-from-tooMany[key] < voters {
			return false
		}
	}
	return len(s.labels)-from >= voters
}
