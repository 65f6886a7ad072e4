package remotesession

import (
	"fmt"
	"slices"
	"strings"
)

// Result of a search.
type Result struct {
	Scenario  Scenario
	States    int    // visited
	Quiesced  int    // of them with something left to clean up, which was, once faults stopped
	Depth     int    // of the last state looked at
	Complete  bool   // all states within the bounds were visited
	Violation string // what was violated; empty: nothing
	Trace     []string
	Actions   [numActions]int // how often each action led to a new state
}

// String is a line for the test's log.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, fault %s: %d states, %d of them settled, depth %d", r.Scenario.Name, r.Scenario.Fault, r.States, r.Quiesced, r.Depth)
	if !r.Complete && r.Violation == "" {
		b.WriteString(", cut off at its limit")
	}
	if r.Violation != "" {
		fmt.Fprintf(&b, ": %s", r.Violation)
		for i, t := range r.Trace {
			fmt.Fprintf(&b, "\n  %2d. %s", i+1, t)
		}
	}
	return b.String()
}

// stateSet is a set of hashes by open addressing. With each it keeps the state and the action that
// led to it. Two of n states collide with probability n²/2^65.
type stateSet struct {
	hashes []uint64
	index  []uint32 // into from
	from   []origin
	mask   uint64
}

type origin struct {
	parent uint32
	by     action
}

func newStateSet() *stateSet {
	const size = 1 << 16
	return &stateSet{hashes: make([]uint64, size), index: make([]uint32, size), mask: size - 1}
}

func (v *stateSet) add(h uint64, o origin) (uint32, bool) {
	if h == 0 {
		h = 1
	}
	if uint64(len(v.from))*2 > v.mask {
		v.grow()
	}
	i := h & v.mask
	for v.hashes[i] != 0 {
		if v.hashes[i] == h {
			return v.index[i], false
		}
		i = (i + 1) & v.mask
	}
	n := uint32(len(v.from))
	v.hashes[i], v.index[i] = h, n
	v.from = append(v.from, o)
	return n, true
}

func (v *stateSet) grow() {
	hashes, index := v.hashes, v.index
	v.mask = v.mask*2 + 1
	v.hashes, v.index = make([]uint64, v.mask+1), make([]uint32, v.mask+1)
	for k, h := range hashes {
		if h == 0 {
			continue
		}
		i := h & v.mask
		for v.hashes[i] != 0 {
			i = (i + 1) & v.mask
		}
		v.hashes[i], v.index[i] = h, index[k]
	}
}

// Search visits the states of a scenario, nearest first, until one violates something, all were
// visited, or limit was reached. Traces are shortest ones.
func Search(c Scenario, limit int) Result {
	m := &model{c.Fault}
	r := Result{Scenario: c}
	visited := newStateSet()
	good := newStateSet()
	type item struct {
		n uint32
		s state
	}
	first := start(&c)
	n, _ := visited.add(first.hash(), origin{})
	now, next := []item{{n, first}}, []item(nil)
	for len(now) > 0 {
		for k := range now {
			it := &now[k]
			if len(visited.from) >= limit {
				r.States = len(visited.from)
				return r
			}
			done := false
			m.steps(&it.s, func(a action, s *state) {
				if done {
					return
				}
				n, isNew := visited.add(s.hash(), origin{it.n, a})
				if !isNew {
					return
				}
				r.Actions[a.kind]++
				var tail []string
				if s.violation == noViolation {
					tail = m.quiesce(s, good, &r)
				}
				if s.violation != noViolation {
					done = true
					r.Violation = violations[s.violation]
					r.Trace = append(trace(visited, n), tail...)
					return
				}
				if s.gone == 1 && !s.mayHold() {
					return // nothing will ever be held again, and who owns what does not depend on sessions
				}
				next = append(next, item{n, *s})
			})
			if done {
				r.States = len(visited.from)
				return r
			}
		}
		now, next = next, now[:0]
		if len(now) > 0 {
			r.Depth++
		}
	}
	r.States, r.Complete = len(visited.from), true
	return r
}

func trace(v *stateSet, n uint32) []string {
	var out []string
	for n != 0 {
		out = append(out, v.from[n].by.String())
		n = v.from[n].parent
	}
	slices.Reverse(out)
	return out
}

// quiesce lets faults stop. Everything is delivered, moves are finished, leaders stay, and the
// protocol takes its steps in a fixed order until nothing is left to do. Then nothing may be held
// for an ended session, and a remote session must have the newest attach epoch. Otherwise it sets
// the state's violation and returns what happened. Only states in which something is or may be held
// can fail. States on the way of one that came to rest are known to come to rest.
func (m *model) quiesce(from *state, good *stateSet, r *Result) []string {
	if !from.mayHold() {
		return nil
	}
	s := *from
	s.budget, s.duplicate = budget{}, command{}
	var path []uint64
	var said []string
	for {
		h := s.hash()
		if good.has(h) {
			break
		}
		if slices.Contains(path, h) {
			from.violation = stuck
			return append(said, "and so on")
		}
		path = append(path, h)
		a, ok := m.nextStep(&s)
		if !ok {
			if from.violation = m.checkAtRest(&s); from.violation != noViolation {
				return append(said, "nothing is left to do")
			}
			break
		}
		said = append(said, a.String())
		if s.violation != noViolation {
			from.violation = s.violation
			return said
		}
	}
	for _, h := range path {
		good.add(h, origin{})
	}
	r.Quiesced++
	return nil
}

func (v *stateSet) has(h uint64) bool {
	if h == 0 {
		h = 1
	}
	for i := h & v.mask; v.hashes[i] != 0; i = (i + 1) & v.mask {
		if v.hashes[i] == h {
			return true
		}
	}
	return false
}

// mayHold says that something is held for the session, or may be by an acquire in flight.
func (s *state) mayHold() bool {
	for i := range s.shards {
		if s.shards[i].copies[sem].held == 1 {
			return true
		}
	}
	return s.acquires != [3]uint8{}
}

func (m *model) checkAtRest(s *state) uint8 {
	for i := range s.shards {
		x := &s.shards[i]
		c := &x.copies[sem]
		if c.state != active || c.held == 0 {
			continue
		}
		if s.gone == 1 {
			return leaked
		}
		if s.isRemote(uint8(i)) && x.attach < s.attach {
			return oldEpoch
		}
	}
	return noViolation
}

// nextStep takes the first step of a faultless run.
func (m *model) nextStep(s *state) (action, bool) {
	best := action{}
	var after state
	rank := func(a action) int {
		switch a.kind {
		case actStep:
			return 1
		case actStart:
			return 2
		case actReceiveAcquire:
			return 3
		case actUpdateMap:
			return 4
		case actReceiveNotice:
			return 5
		case actReceiveAnswer:
			return 6
		case actReceiveQuestion, actRegister, actUnsubscribe:
			return 7
		case actLogRelease:
			return 8
		case actLinkDead:
			return 9
		case actAsk:
			return 10
		case actTimeout:
			return 11
		}
		return 0
	}
	least := 100
	m.steps(s, func(a action, n *state) {
		if k := rank(a); k > 0 && k < least {
			best, after, least = a, *n, k
		}
	})
	if least == 100 {
		return best, false
	}
	*s = after
	return best, true
}
