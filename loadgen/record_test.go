package loadgen

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestBuckets: each value has a place, places are in order of values, and a place's middle is
// within half a step of its values.
func TestBuckets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Int64Range(0, maxValue).Draw(t, "v")
		o, i := bucketOf(v)
		if o < 0 || o >= octaves || i < 0 || i >= stepsPerOctave {
			t.Fatalf("%d is at %d, %d", v, o, i)
		}
		if m := bucketMiddle(o, i); math.Abs(float64(m-v)) > float64(v)/stepsPerOctave/2+0.5 {
			t.Fatalf("%d counts as %d", v, m)
		}
		if w := v + rapid.Int64Range(0, maxValue-v).Draw(t, "more"); w > v {
			p, k := bucketOf(w)
			if p < o || (p == o && k < i) {
				t.Fatalf("%d is at %d, %d and the greater %d at %d, %d", v, o, i, w, p, k)
			}
		}
	})
}

// TestQuantiles compares with sorting, for values spread over all magnitudes in several recorders.
func TestQuantiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var all []int64
	var sum histogram
	for range 5 {
		var c histogram
		for range 4000 {
			v := int64(math.Exp(rng.Float64() * math.Log(1e11)))
			all = append(all, v)
			c.add(v)
		}
		sum.merge(&c)
	}
	sum.merge(&histogram{})
	slices.Sort(all)
	s := newSeries("x", &sum)
	if s.Count != uint64(len(all)) || s.MinUS != float64(all[0])/1e3 || s.MaxUS != float64(all[len(all)-1])/1e3 {
		t.Errorf("%d values from %v to %v, want %d from %v to %v ns", s.Count, s.MinUS, s.MaxUS, len(all), all[0], all[len(all)-1])
	}
	for _, p := range []float64{0.1, 1, 10, 50, 90, 99, 99.9, 99.99} {
		want := all[int(math.Ceil(p/100*float64(len(all))))-1]
		if got := s.At(p); math.Abs(float64(int64(got)-want)) > 0.005*float64(want)+1 {
			t.Errorf("p%v is %d, want %d", p, got, want)
		}
	}
}

func TestOutOfRange(t *testing.T) {
	var c histogram
	c.add(-5)
	c.add(math.MaxInt64)
	if c.n != 2 || c.min != 0 || c.max != maxValue {
		t.Errorf("%d values from %d to %d", c.n, c.min, c.max)
	}
	if s := newSeries("x", &histogram{}); s.Count != 0 || s.At(99) != 0 || s.P50US != 0 {
		t.Errorf("nothing gives %+v", s)
	}
}

// TestZipf compares how often places are drawn with the law.
func TestZipf(t *testing.T) {
	for _, skew := range []float64{0, 0.5, 0.99, 1, 2} {
		const n, draws = 20, 200_000
		p := newPicker(7, 3, n, zipf(n, skew))
		var got [n]float64
		for range draws {
			got[p.next()]++
		}
		norm := 0.0
		for k := range n {
			norm += math.Pow(float64(k+1), -skew)
		}
		for k := range n {
			want := draws * math.Pow(float64(k+1), -skew) / norm
			if math.Abs(got[k]-want) > 5*math.Sqrt(want)+1 {
				t.Errorf("skew %v: place %d was drawn %v times, want %v", skew, k, got[k], want)
			}
		}
	}
	a, b, c := newPicker(7, 3, 1000, nil), newPicker(7, 3, 1000, nil), newPicker(7, 4, 1000, nil)
	same, other := true, true
	for range 20 {
		x := a.next()
		same, other = same && x == b.next(), other && x == c.next()
	}
	if !same || other {
		t.Errorf("the same seed and caller draw the same is %v, another caller does too is %v", same, other)
	}
	if p := newPicker(0, 0, 1, zipf(1, 2)); p.next() != 0 {
		t.Error("of one place another was drawn")
	}
}
