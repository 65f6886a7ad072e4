package ratelimit

import (
	"fmt"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// situation is a fleet as people have it: most of it rests. The oracle says what those who call are
// to have, and the meters what they may.
type situation struct {
	name     string
	root     protocol.LimitConfig
	children []protocol.LimitConfig
	resting  int // programs that have a leaf open, in turn, and never call
	programs []program
}

// program has leaves open, all of them if it does not say which, and calls some.
type program struct {
	leaves []int // nil: all; of a tree without children there is one
	calls  []simCaller
	at     []int // the leaves that these call
}

func leaves(n int, c protocol.LimitConfig) (list []protocol.LimitConfig) {
	for range n {
		list = append(list, c)
	}
	return list
}

func (s *situation) run(t *testing.T, seed uint64, seconds float64) *simulation {
	x := newWorld(t, seed, s.root, s.children...)
	x.still = true
	for i := range s.resting {
		x.begin(x.add(), x.leaves[i%len(x.leaves)])
	}
	for i := range s.programs {
		p := &s.programs[i]
		paths := x.leaves
		if p.leaves != nil {
			paths = nil
			for _, k := range p.leaves {
				paths = append(paths, x.leaves[k])
			}
		}
		c := x.add()
		opened := x.begin(c, paths...)
		for k := range p.calls {
			q := p.calls[k]
			q.leaves = []*leaf{opened[p.at[k]]}
			c.callers = append(c.callers, &q)
		}
	}
	for end := x.now + seconds*1000; x.now < end; {
		x.step()
	}
	return x
}

// TestSituations: who calls has the limit, whatever rests beside it.
func TestSituations(t *testing.T) {
	one := []simCaller{{amount: 1000, waits: true}}
	denied := []simCaller{{amount: 1000}}
	none := protocol.LimitConfig{Unlimited: true}
	var list []situation
	for _, n := range []int{40, 250, 400} {
		for _, x := range []protocol.LimitConfig{{Rate: 100_000}, {Rate: 1_000_000}, {Rate: 1_000_000, Burst: 100, Lease: 500}, {Rate: 20_000, Lease: 10_000}} {
			list = append(list, situation{name: fmt.Sprintf("one of %d tenants calls", n), root: x, children: leaves(n, none),
				programs: []program{{calls: one, at: []int{n / 2}}}})
		}
	}
	list = append(list,
		situation{name: "290 programs rest on the leaf of one", root: protocol.LimitConfig{Rate: 1_000_000}, resting: 290,
			programs: []program{{calls: one, at: []int{0}}}},
		situation{name: "290 programs rest on the leaf of one that does not wait", root: protocol.LimitConfig{Rate: 1_000_000}, resting: 290,
			programs: []program{{calls: denied, at: []int{0}}}},
		situation{name: "more limiters than fit a refresh, three of which call", root: protocol.LimitConfig{Rate: 1_000_000}, children: leaves(1_500, none),
			programs: []program{{calls: append(append(one, denied...), one...), at: []int{0, 700, 1_499}}}},
	)
	ten := situation{name: "ten of 500 programs call", root: protocol.LimitConfig{Rate: 1_000_000}, resting: 490}
	for range 10 {
		ten.programs = append(ten.programs, program{calls: one, at: []int{0}})
	}
	list = append(list, ten)
	for _, weight := range []uint32{4, 24, 100} { // the other's share is under a twentieth of the tree
		for _, lease := range []uint64{500, 1000, 3000} {
			list = append(list, situation{name: fmt.Sprintf("a small share of 1 beside %d, lease %d ms", weight, lease), root: protocol.LimitConfig{Rate: 100_000, Lease: lease},
				children: []protocol.LimitConfig{{Unlimited: true, Weight: weight}, {Unlimited: true, Weight: 1}},
				programs: []program{{leaves: []int{0}, calls: one, at: []int{0}}, {leaves: []int{1}, calls: one, at: []int{0}}}})
		}
	}
	list = append(list, situation{name: "a small min beside a busy leaf", root: protocol.LimitConfig{Rate: 100_000, Lease: 1000},
		children: []protocol.LimitConfig{{Unlimited: true, Weight: 10_000}, {Unlimited: true, Min: 3_000}},
		programs: []program{{leaves: []int{0}, calls: one, at: []int{0}}, {leaves: []int{1}, calls: one, at: []int{0}}}})
	many := []simCaller{}
	at := []int{}
	for range 50 {
		many, at = append(many, one...), append(at, 0)
	}
	list = append(list, situation{name: "50 callers of one unit, and one of 600 in another program", root: protocol.LimitConfig{Rate: 1_000_000},
		programs: []program{{calls: many, at: at}, {calls: []simCaller{{amount: 600_000, waits: true}}, at: []int{0}}}})
	for i := range list {
		s := &list[i]
		x := s.run(t, uint64(i), 5)
		if x.windows < 2 {
			t.Errorf("%s: only %d seconds were compared", s.name, x.windows)
		}
	}
}
