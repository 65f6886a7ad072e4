package governor

import (
	"cmp"
	"slices"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// VoterCount is the number of voters of a group on this many instances: all of up to two, three of
// three or four, else five. An even number more would tolerate no more failures.
func VoterCount(instances int) int {
	switch {
	case instances <= 2:
		return instances
	case instances <= 4:
		return 3
	}
	return 5
}

// Departure is whether, and how, an instance leaves.
type Departure uint8

const (
	Staying       Departure = iota
	Pausing                 // going offline, or drained: its vote goes to another if there is one
	BeingExpelled           // its vote goes in any case
)

// Candidate is an instance from which a group's voters are chosen.
type Candidate struct {
	Instance  uint64
	Domain    []meta.Label
	Voter     bool // it was chosen to have a vote
	Votes     bool // it has one already
	Ready     bool // it may get one: Online as wanted, heard, able to vote
	Departure Departure
}

// Voters chooses the instances that vote, in order of id. It is pure and stable: with its own
// choice as the present voters it chooses the same again.
//
// A voter that leaves is replaced by the candidate that is farthest from the other voters. A
// missing voter is added. Voters are replaced until they are spread over failure domains, as far as
// the candidates allow (survivableKeys), and then while a candidate is strictly farther away.
// Distance is between failure domains; ties go to the lowest id. An offline voter without a
// replacement keeps its vote, unless there are more than enough: a cluster that went down whole
// must find its voters again.
func Voters(list []Candidate) []uint64 {
	v := voters{list: slices.Clone(list)}
	slices.SortFunc(v.list, func(a, b Candidate) int { return cmp.Compare(a.Instance, b.Instance) })
	var stay [][]meta.Label
	for i := range v.list {
		if v.list[i].Departure != BeingExpelled {
			stay = append(stay, v.list[i].Domain)
		}
		if v.list[i].Voter {
			v.count++
		}
	}
	needed := VoterCount(len(stay))
	v.keys, v.most = survivableKeys(stay), Tolerance(len(stay))
	v.replaceLeaving(needed)
	for v.count > max(needed, 1) {
		v.set(v.nearest(), false)
	}
	for v.count < needed {
		next := v.farthest(-1)
		if next < 0 {
			break
		}
		v.set(next, true)
	}
	v.redistribute()
	if v.surplus() > 0 && v.rearrange() {
		v.redistribute()
	}
	var chosen []uint64
	for i := range v.list {
		if v.list[i].Voter {
			chosen = append(chosen, v.list[i].Instance)
		}
	}
	return chosen
}

type voters struct {
	list  []Candidate // Voter: chosen so far
	count int         // of chosen voters
	keys  []string    // of failure domains over which to spread the voters
	most  int         // how many voters such a domain may have
}

func (v *voters) set(i int, voter bool) {
	if v.list[i].Voter == voter {
		return
	}
	v.list[i].Voter = voter
	if voter {
		v.count++
	} else {
		v.count--
	}
}

// replaceLeaving takes away the votes of leaving instances: expelled ones first, so that a paused
// one may keep its vote if there is only one replacement. Those that have no vote yet go first.
func (v *voters) replaceLeaving(needed int) {
	for n := range 4 {
		departure, votes := []Departure{BeingExpelled, BeingExpelled, Pausing, Pausing}[n], n%2 == 1
		for i := range v.list {
			if c := &v.list[i]; !c.Voter || c.Departure != departure || c.Votes != votes {
				continue
			}
			next := v.farthest(i)
			switch {
			case v.count > max(needed, 1): // its replacement was chosen before
				v.set(i, false)
			case next >= 0:
				v.set(i, false)
				v.set(next, true)
			case departure == BeingExpelled && v.count > 1:
				v.set(i, false)
			}
		}
	}
}

// mayGetVote reports whether an instance may become a voter.
func (v *voters) mayGetVote(i int) bool {
	c := &v.list[i]
	return !c.Voter && c.Ready && c.Departure == Staying
}

// farthest returns the candidate that is farthest from the voters, leaving out the voter that it
// replaces, or -1 without a candidate.
func (v *voters) farthest(replaced int) int {
	best, far := -1, -1
	for i := range v.list {
		if !v.mayGetVote(i) {
			continue
		}
		if d := v.sum(i, replaced); d > far {
			best, far = i, d
		}
	}
	return best
}

// nearest is the voter that adds least to the distances between voters; ties go to the highest id.
func (v *voters) nearest() int {
	best, near := -1, 0
	for i := range v.list {
		if !v.list[i].Voter {
			continue
		}
		if d := v.sum(i, -1); best < 0 || d <= near {
			best, near = i, d
		}
	}
	return best
}

// sum is the distance from one instance to all voters, without itself and the voter to be replaced.
func (v *voters) sum(i, replaced int) int {
	d := 0
	for j := range v.list {
		if v.list[j].Voter && j != i && j != replaced {
			d += meta.Distance(v.list[i].Domain, v.list[j].Domain)
		}
	}
	return d
}

// surplus is how many voters failure domains have above their most.
func (v *voters) surplus() (n int) {
	counts := make(map[meta.Label]int)
	for i := range v.list {
		if !v.list[i].Voter {
			continue
		}
		for _, l := range v.list[i].Domain {
			if slices.Contains(v.keys, l.Key) {
				if counts[l]++; counts[l] > v.most {
					n++
				}
			}
		}
	}
	return n
}

// redistribute replaces voters while that takes votes from failure domains that have too many, or
// else puts the voters farther apart, the greatest gain first. The surplus falls with each step, or
// stays and the sum of all distances rises, so it ends.
func (v *voters) redistribute() {
	for {
		out, in, fewer, gain := -1, -1, 0, 0
		before := v.surplus()
		for i := range v.list {
			if !v.list[i].Voter {
				continue
			}
			for j := range v.list {
				if !v.mayGetVote(j) {
					continue
				}
				g := v.sum(j, i) - v.sum(i, i)
				v.list[i].Voter, v.list[j].Voter = false, true
				f := before - v.surplus()
				v.list[i].Voter, v.list[j].Voter = true, false
				if f > fewer || f == fewer && g > gain {
					out, in, fewer, gain = i, j, f, g
				}
			}
		}
		if out < 0 {
			return
		}
		v.set(out, false)
		v.set(in, true)
	}
}

// rearrange replaces several voters at once, so that no failure domain has too many. It keeps as
// many present ones as the search finds first, and returns false if the candidates do not suffice.
func (v *voters) rearrange() bool {
	var order []int
	for _, present := range []bool{true, false} {
		for i := range v.list {
			if v.list[i].Voter == present && (present || v.mayGetVote(i)) {
				order = append(order, i)
			}
		}
	}
	domains := make([][]meta.Label, len(order))
	for n, i := range order {
		domains[n] = v.list[i].Domain
	}
	chosen := spreadVoters(domains, v.count, v.most, v.keys)
	if chosen == nil {
		return false
	}
	for n, i := range order {
		v.set(i, slices.Contains(chosen, n))
	}
	return true
}
