package discovery

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
)

// caller is what decides, beside the list, which endpoints are used.
type caller struct {
	zone       string
	subset     int    // endpoints used at most; 0: all
	panicShare int    // per cent
	id         uint64 // random
}

// choose says which endpoints of a list, one for each address, a caller uses. It is pure: equal
// lists and callers have equal results, in the list's order.
func choose(all []*Endpoint, c caller) (used []*Endpoint, panicking bool) {
	used, panicking = chooseStates(all, c.panicShare)
	return chooseSubset(chooseZone(all, used, c.zone), c), panicking
}

// reasons lists the steps of a choice, each with the endpoints that it leaves.
type reasons struct {
	states, zone, subset map[*Endpoint]bool
	panicking, near      bool // near: those of the caller's zone alone
	caller               caller
}

func reasonsOf(all []*Endpoint, c caller) *reasons {
	states, panicking := chooseStates(all, c.panicShare)
	zone := chooseZone(all, states, c.zone)
	return &reasons{setOf(states), setOf(zone), setOf(chooseSubset(zone, c)), panicking,
		!slices.ContainsFunc(zone, func(e *Endpoint) bool { return e.Zone != c.zone }), c}
}

func setOf(list []*Endpoint) map[*Endpoint]bool {
	set := make(map[*Endpoint]bool, len(list))
	for _, e := range list {
		set[e] = true
	}
	return set
}

// of says in a few words why an endpoint of the list is used by the caller, or is not.
func (r *reasons) of(e *Endpoint) (used bool, why string) {
	switch {
	case !r.states[e]:
		return false, "it is " + string(e.state())
	case !r.zone[e]:
		return false, "it is in another zone"
	case !r.subset[e]:
		return false, "it is not in this caller's subset"
	case e.state() == Draining:
		return true, "only draining ones are left"
	case r.panicking:
		return true, "too few are ready"
	case r.caller.zone != "" && r.near:
		return true, "it is in the zone"
	case r.caller.zone != "":
		return true, "the zone alone is not enough"
	}
	return true, "it is ready"
}

// chooseStates takes the ready ones. If they are too few beside the failing ones, it takes both: a
// check that fails everywhere says more about the check than about the members, and the few that
// are ready would not carry the load of all. Draining ones still answer, where there are no others.
func chooseStates(all []*Endpoint, panicShare int) (used []*Endpoint, panicking bool) {
	var weights, counts [3]int
	for _, e := range all {
		weights[rank(e)] += e.weight()
		counts[rank(e)]++
	}
	ready, both := weights[0], weights[0]+weights[1]
	highest := 0 // rank that is used
	switch {
	case counts[0]+counts[1] == 0:
		highest = 2
	case counts[0] == 0, 100*ready < panicShare*both:
		highest, panicking = 1, true
	}
	used = make([]*Endpoint, 0, len(all))
	for _, e := range all {
		if rank(e) <= highest {
			used = append(used, e)
		}
	}
	return used, panicking
}

func rank(e *Endpoint) int {
	switch e.state() {
	case Failing:
		return 1
	case Draining:
		return 2
	}
	return 0
}

// chooseZone takes the used endpoints of the caller's zone alone, while there are two of them and
// half of the zone is ready. A zone that is half down would be overloaded by its own callers.
func chooseZone(all, used []*Endpoint, zone string) []*Endpoint {
	if zone == "" {
		return used
	}
	var near []*Endpoint
	for _, e := range used {
		if e.Zone == zone {
			near = append(near, e)
		}
	}
	ready, whole := 0, 0
	for _, e := range all {
		if e.Zone != zone {
			continue
		}
		whole += e.weight()
		if e.state() == Ready {
			ready += e.weight()
		}
	}
	if len(near) >= 2 && 2*ready >= whole {
		return near
	}
	return used
}

// chooseSubset takes those with the highest scores of weighted rendezvous hashing: a caller's
// choice changes by one endpoint when the list does, and the choices of many callers are spread by
// weight.
func chooseSubset(used []*Endpoint, c caller) []*Endpoint {
	if c.subset == 0 || len(used) <= c.subset {
		return used
	}
	best := make(bestScores, 0, c.subset+1)
	for i, e := range used {
		share := fraction(c.id, e.Addr)
		if len(best) == c.subset && float64(e.weight()) < best[0].score*(1-share) {
			continue // -ln(x) is at least 1-x, so its score is lower still
		}
		x := scored{score(e.weight(), share), e.Addr, i}
		if len(best) == c.subset && x.less(best[0]) {
			continue
		}
		heap.Push(&best, x)
		if len(best) > c.subset {
			heap.Pop(&best)
		}
	}
	slices.SortFunc(best, func(a, b scored) int { return cmp.Compare(a.place, b.place) })
	subset := make([]*Endpoint, len(best))
	for i, x := range best {
		subset[i] = used[x.place]
	}
	return subset
}

type scored struct {
	score float64
	addr  string
	place int // in the list
}

func (s scored) less(t scored) bool {
	return s.score < t.score || s.score == t.score && s.addr > t.addr
}

// bestScores is a heap with the least of them on top.
type bestScores []scored

func (b bestScores) Len() int           { return len(b) }
func (b bestScores) Less(i, j int) bool { return b[i].less(b[j]) }
func (b bestScores) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }
func (b *bestScores) Push(x any)        { *b = append(*b, x.(scored)) }

func (b *bestScores) Pop() any {
	last := (*b)[len(*b)-1]
	*b = (*b)[:len(*b)-1]
	return last
}

// score is what an endpoint of some weight has with a hash in (0, 1).
func score(weight int, hash float64) float64 { return float64(weight) / -math.Log(hash) }

// fraction is a hash of caller and address in (0, 1). It takes eight bytes at a time: a view of 5,000
// endpoints has as many of them.
func fraction(id uint64, addr string) float64 {
	h := id
	for ; len(addr) >= 8; addr = addr[8:] {
		h = mix(h ^ (uint64(addr[0]) | uint64(addr[1])<<8 | uint64(addr[2])<<16 | uint64(addr[3])<<24 |
			uint64(addr[4])<<32 | uint64(addr[5])<<40 | uint64(addr[6])<<48 | uint64(addr[7])<<56))
	}
	rest := uint64(len(addr)) << 56
	for i := range len(addr) {
		rest |= uint64(addr[i]) << (8 * i)
	}
	return (float64(mix(h^rest)>>11) + 0.5) / (1 << 53)
}

// mix is that of splitmix64.
func mix(h uint64) uint64 {
	h ^= h >> 30
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 27
	h *= 0x94d049bb133111eb
	return h ^ h>>31
}
