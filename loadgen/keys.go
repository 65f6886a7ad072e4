// Which name does an operation use?

package loadgen

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"sort"
	"strconv"
)

// nameSet is numbered names. A name is made when it is needed, as a program makes one of an order's
// number, so that its cost is part of the measurement.
type nameSet struct {
	prefix string
	n      int
}

func (s nameSet) name(i int) string { return s.prefix + strconv.Itoa(i) }

// all makes all names, for scenarios whose programs would keep theirs.
func (s nameSet) all() []string {
	list := make([]string, s.n)
	for i := range list {
		list[i] = s.name(i)
	}
	return list
}

// picker draws places of a list. Each caller has one of its own.
type picker struct {
	rng *rand.PCG
	n   uint64
	cum []float64 // shared; nil: all alike
}

// zipf is the cumulative distribution of a zipf law over n places: the k-th has the weight
// 1/k^skew. It is nil when all are alike.
func zipf(n int, skew float64) []float64 {
	if skew == 0 || n < 2 {
		return nil
	}
	cum := make([]float64, n)
	sum := 0.0
	for k := range cum {
		sum += math.Pow(float64(k+1), -skew)
		cum[k] = sum
	}
	for k := range cum {
		cum[k] /= sum
	}
	cum[n-1] = 1
	return cum
}

// newPicker draws among n places. caller makes the sequences of one seed differ.
func newPicker(seed uint64, caller, n int, cum []float64) *picker {
	return &picker{rng: rand.NewPCG(seed, uint64(caller)+1), n: uint64(n), cum: cum}
}

func (p *picker) next() int {
	if p.n < 2 {
		return 0
	}
	x := p.rng.Uint64()
	if p.cum == nil {
		place, _ := bits.Mul64(x, p.n)
		return int(place)
	}
	return sort.SearchFloat64s(p.cum, float64(x>>11)/(1<<53))
}
