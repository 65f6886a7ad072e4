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
	fmt.Fprintf(&b, "%s, fault %s: %d states, %d of them settled, depth %d",
		r.Scenario.Name, r.Scenario.Fault, r.States, r.Quiesced, r.Depth)
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

// stateSet numbers the states that were visited by their hashes, and keeps how each came to be. Two
// of n states collide with probability n²/2^65.
type stateSet struct {
	numbers map[uint64]uint32
	from    []origin // by number
}

type origin struct {
	parent uint32
	by     action
}

// add returns the number of a state, and whether it was not there before.
func (v *stateSet) add(h uint64, o origin) (uint32, bool) {
	if n, known := v.numbers[h]; known {
		return n, false
	}
	n := uint32(len(v.from))
	v.numbers[h] = n
	v.from = append(v.from, o)
	return n, true
}

// Search visits the states of a scenario, nearest first, until one violates something, all were
// visited, or limit was reached. Traces are shortest ones.
func Search(c Scenario, limit int) Result {
	m := &model{c.Fault}
	r := Result{Scenario: c}
	visited := &stateSet{numbers: map[uint64]uint32{}}
	good := map[uint64]bool{}
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
	var taken []action
	for ; n != 0; n = v.from[n].parent {
		taken = append(taken, v.from[n].by)
	}
	slices.Reverse(taken)
	return texts(taken)
}

// quiesce lets faults stop. Everything is delivered, moves are finished, leaders stay, and the
// protocol takes its steps in a fixed order until nothing is left to do. Then nothing may be held
// for an ended session, and a remote session must have the newest attach epoch. Otherwise it sets
// the state's violation and returns what happened. Only states in which something is or may be held
// can fail. States on the way of one that came to rest are known to come to rest.
func (m *model) quiesce(from *state, good map[uint64]bool, r *Result) []string {
	if !from.mayHold() {
		return nil
	}
	s := *from
	s.budget, s.duplicate = budget{}, command{}
	var path []uint64
	var taken []action
	for h := s.hash(); !good[h]; h = s.hash() {
		if slices.Contains(path, h) {
			from.violation = stuck
			return append(texts(taken), "and so on")
		}
		path = append(path, h)
		a, ok := m.nextStep(&s)
		if !ok {
			if from.violation = m.checkAtRest(&s); from.violation != noViolation {
				return append(texts(taken), "nothing is left to do")
			}
			break
		}
		taken = append(taken, a)
		if s.violation != noViolation {
			from.violation = s.violation
			return texts(taken)
		}
	}
	for _, h := range path {
		good[h] = true
	}
	r.Quiesced++
	return nil
}

func texts(taken []action) (list []string) {
	for _, a := range taken {
		list = append(list, a.String())
	}
	return list
}

// mayHold reports whether something is held for the session, or may be by an acquire in flight.
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

// ranks order the steps of a faultless run. Actions without a rank are faults, or a client's.
var ranks = [numActions]int{
	actStep: 1, actStart: 2, actReceiveAcquire: 3, actUpdateMap: 4, actReceiveNotice: 5, actReceiveAnswer: 6,
	actReceiveQuestion: 7, actRegister: 7, actUnsubscribe: 7, actLogRelease: 8, actLinkDead: 9, actAsk: 10, actTimeout: 11,
}

// nextStep takes the first step of a faultless run.
func (m *model) nextStep(s *state) (best action, ok bool) {
	var after state
	m.steps(s, func(a action, n *state) {
		if k := ranks[a.kind]; k > 0 && (!ok || k < ranks[best.kind]) {
			best, after, ok = a, *n, true
		}
	})
	if ok {
		*s = after
	}
	return best, ok
}
