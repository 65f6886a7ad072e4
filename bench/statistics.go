// What do several rounds say together?

package bench

import (
	"math"
	"slices"
)

// Stat summarizes a figure over several rounds.
type Stat struct {
	Median float64
	Low    float64 // of all rounds
	High   float64
	N      int
}

// StatOf sums up values; those that are no numbers do not count. The median of an even number of
// values is the mean of the middle two.
func StatOf(values []float64) Stat {
	v := make([]float64, 0, len(values))
	for _, x := range values {
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			v = append(v, x)
		}
	}
	n := len(v)
	if n == 0 {
		return Stat{Median: math.NaN(), Low: math.NaN(), High: math.NaN()}
	}
	slices.Sort(v)
	return Stat{Median: (v[(n-1)/2] + v[n/2]) / 2, Low: v[0], High: v[n-1], N: n}
}

// Spread is the distance of the rounds, as a part of the median: 0.1 is 10 %.
func (s Stat) Spread() float64 {
	if s.N == 0 || s.Median == 0 {
		return 0
	}
	return (s.High - s.Low) / math.Abs(s.Median)
}
