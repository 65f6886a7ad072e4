package core

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestShortest: the shortest of many, against a list that is searched.
func TestShortest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s shortest
		var model []time.Duration
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			if i := rapid.IntRange(-3, 10).Draw(t, "which"); i >= 0 && i < len(model) {
				s.Remove(model[i])
				model = append(model[:i], model[i+1:]...)
			} else {
				d := time.Duration(rapid.IntRange(1, 5).Draw(t, "d"))
				s.Add(d)
				model = append(model, d)
			}
			want := time.Duration(4)
			for _, d := range model {
				want = min(want, d)
			}
			if got := s.Or(4); got != want {
				t.Fatalf("shortest of %v is %v, want %v", model, got, want)
			}
		}
	})
}
