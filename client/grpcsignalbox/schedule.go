package grpcsignalbox

import (
	"math"
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
	order int // of those that are due at once
	index int
}

// newSchedule begins anywhere in a round, with each index as often as its weight has it: callers that
// get a list at once, and make one call, are spread as all calls of one caller are. random is
// rand.IntN.
func newSchedule(weights []int, random func(int) int) *schedule {
	s, sum := &schedule{}, 0
	for _, w := range weights {
		sum += w
	}
	if sum == 0 {
		return s
	}
	first, turns := 0, random(sum) // the index that begins, and its turns in the round before
	for turns >= weights[first] {
		turns -= weights[first]
		first++
	}
	begin := (0.5 + float64(turns)) / float64(weights[first])
	for i, w := range weights {
		before := math.Ceil(begin*float64(w) - 0.5 - 1e-9)
		order := (i - first + len(weights)) % len(weights)
		s.due = append(s.due, turn{(0.5 + before) / float64(w), 1 / float64(w), order, i})
	}
	s.due[first].at = begin
	for i := len(s.due)/2 - 1; i >= 0; i-- {
		s.down(i)
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
	return a.at < b.at || a.at == b.at && a.order < b.order
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
