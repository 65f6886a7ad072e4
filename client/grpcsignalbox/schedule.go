package grpcsignalbox

import (
	"math/rand/v2"
	"sync"
)

// schedule is weighted round robin by earliest deadline: an index of weight w is due at 0.5/w,
// 1.5/w, and so on. In a run of as many picks as the sum of weights, each index comes as often as
// its weight, plus or minus 1. Methods may be called at once.
type schedule struct {
	mu  sync.Mutex
	due []turn // a heap, the earliest on top
}

type turn struct {
	at    float64
	every float64
	index int
}

// newSchedule begins anywhere in the first round: callers that get a list at once should not all
// begin with the same member.
func newSchedule(weights []int) *schedule {
	s := &schedule{}
	for i, w := range weights {
		s.due = append(s.due, turn{0.5 / float64(w), 1 / float64(w), i})
	}
	for i := len(s.due)/2 - 1; i >= 0; i-- {
		s.down(i)
	}
	for range rand.IntN(max(1, len(weights))) {
		s.next()
	}
	return s
}

func (s *schedule) next() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.due[0].index
	s.due[0].at += s.due[0].every
	s.down(0)
	return i
}

func (s *schedule) before(i, j int) bool {
	a, b := &s.due[i], &s.due[j]
	return a.at < b.at || a.at == b.at && a.index < b.index
}

// down moves a turn to its place in the heap.
func (s *schedule) down(i int) {
	for {
		first := 2*i + 1
		if first >= len(s.due) {
			return
		}
		if second := first + 1; second < len(s.due) && s.before(second, first) {
			first = second
		}
		if s.before(i, first) {
			return
		}
		s.due[i], s.due[first] = s.due[first], s.due[i]
		i = first
	}
}
