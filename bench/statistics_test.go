package bench

import (
	"math"
	"slices"
	"testing"
)

func TestStatOf(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		values            []float64
		median, low, high float64
		n                 int
		spread            float64
	}{
		{[]float64{5}, 5, 5, 5, 1, 0},
		{[]float64{3, 1, 2}, 2, 1, 3, 3, 1},
		{[]float64{4, 1, 3, 2}, 2.5, 1, 4, 4, 1.2},
		{[]float64{nan, 2, math.Inf(1), 4}, 3, 2, 4, 2, 2. / 3},
		{[]float64{0, 0}, 0, 0, 0, 2, 0},
	} {
		s := StatOf(c.values)
		if s.Median != c.median || s.Low != c.low || s.High != c.high || s.N != c.n || math.Abs(s.Spread()-c.spread) > 1e-9 {
			t.Errorf("%v: %+v with a spread of %v", c.values, s, s.Spread())
		}
	}
	for _, none := range [][]float64{nil, {nan}} {
		if s := StatOf(none); s.N != 0 || !math.IsNaN(s.Median) || s.Spread() != 0 {
			t.Errorf("%v: %+v", none, s)
		}
	}
	values := []float64{3, 1, 2}
	StatOf(values)
	if !slices.Equal(values, []float64{3, 1, 2}) {
		t.Error("the values were put in order under their owner's hands")
	}
}

func TestRatiosAreOfTheSameRound(t *testing.T) {
	// The machine was half as fast in the second round: the ratio does not know.
	got := ratios([]float64{100, 50, math.NaN(), 7, 9}, []float64{10, 5, 1, 0})
	if !slices.Equal(got, []float64{10, 10}) {
		t.Errorf("%v", got)
	}
}

// ratios divides round by round, so that a machine that was slow in a round was slow for both.
// Rounds that only one side has do not count.
func ratios(ours, theirs []float64) []float64 {
	var out []float64
	for i := range min(len(ours), len(theirs)) {
		if r := ours[i] / theirs[i]; !math.IsNaN(r) && !math.IsInf(r, 0) {
			out = append(out, r)
		}
	}
	return out
}
