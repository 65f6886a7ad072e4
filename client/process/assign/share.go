package assign

import (
	"cmp"
	"slices"
)

// unassigned holds the partition.
const unassigned = -1

// member is one of those among whom partitions are shared.
type member struct {
	weight uint32 // 0 counts as 1
	holds  []int  // partitions, rising
}

// share gives each of n partitions an owner, by index of the member. Each member gets its share by
// weight, rounded down or up, and no shares can be met with fewer partitions moving. The outcome
// depends on the arguments alone. Partitions that several members claim to hold go on with the
// first one at most.
func share(n int, members []member) (owner []int) {
	owner = make([]int, n)
	for p := range owner {
		owner[p] = unassigned
	}
	if len(members) == 0 {
		return owner
	}
	held := make([][]int, len(members))
	for i, m := range members {
		for _, p := range m.holds {
			if p >= 0 && p < n && owner[p] == unassigned {
				owner[p] = i
				held[i] = append(held[i], p)
			}
		}
	}
	quotas := quotas(n, members, held)
	for i, list := range held {
		slices.Sort(list)
		for _, p := range list[min(quotas[i], len(list)):] {
			owner[p] = unassigned
		}
		quotas[i] -= min(quotas[i], len(list))
	}
	next := 0
	for p := range owner {
		if owner[p] != unassigned {
			continue
		}
		for quotas[next] == 0 {
			next++ // the quotas are n in all
		}
		owner[p] = next
		quotas[next]--
	}
	return owner
}

// quotas is how many partitions each member is to hold: its share rounded down, and one more for
// some, those first that hold more than that already.
func quotas(n int, members []member, held [][]int) []int {
	total := uint64(0)
	for _, m := range members {
		total += uint64(max(m.weight, 1))
	}
	type part struct {
		i    int
		over bool   // it holds more than its share rounded down
		rest uint64 // what rounding took
	}
	q := make([]int, len(members))
	var parts []part
	left := n
	for i, m := range members {
		x := uint64(n) * uint64(max(m.weight, 1))
		q[i] = int(x / total)
		left -= q[i]
		if rest := x % total; rest > 0 {
			parts = append(parts, part{i, len(held[i]) > q[i], rest})
		}
	}
	slices.SortStableFunc(parts, func(a, b part) int {
		if a.over != b.over {
			if a.over {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.rest, a.rest)
	})
	for _, x := range parts[:left] { // left is the sum of the rests, and each is below one
		q[x.i]++
	}
	return q
}
