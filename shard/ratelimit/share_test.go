package ratelimit

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// fillSlowly is the oracle of share: it pours the amount in small steps, each to those who are not
// satisfied, by weight.
func fillSlowly(amount float64, parts []part) []float64 {
	gets := make([]float64, len(parts))
	for i, p := range parts {
		gets[i] = math.Min(math.Min(float64(p.guarantee), float64(p.demand)), amount)
		amount -= gets[i]
	}
	for amount > 1e-6 {
		weights, step := 0.0, amount
		for i, p := range parts {
			if gets[i] < float64(p.demand) {
				weights += float64(p.weight)
			}
		}
		if weights == 0 {
			break
		}
		// The step ends when the first of them is satisfied.
		for i, p := range parts {
			if left := float64(p.demand) - gets[i]; left > 0 {
				step = math.Min(step, left*weights/float64(p.weight))
			}
		}
		for i, p := range parts {
			if left := float64(p.demand) - gets[i]; left > 0 {
				if gets[i] += step * float64(p.weight) / weights; float64(p.demand)-gets[i] < 1e-7 {
					gets[i] = float64(p.demand)
				}
			}
		}
		amount -= step
	}
	return gets
}

// TestShare compares with the oracle: everybody gets the same, up to rounding, and nothing that is
// wanted is left over.
func TestShare(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		parts := make([]part, 1+r.IntN(12))
		scale := uint64(1) << r.IntN(40)
		wanted := uint64(0)
		for i := range parts {
			p := &parts[i]
			p.index, p.weight, p.demand = i, 1+r.Uint64N(1<<r.IntN(13)), r.Uint64N(1000*scale)
			if r.IntN(3) == 0 {
				p.guarantee = r.Uint64N(100 * scale)
			}
			wanted += p.demand
		}
		amount := r.Uint64N(6000 * scale)
		want := fillSlowly(float64(amount), parts)
		share(amount, parts)
		slices.SortFunc(parts, func(a, b part) int { return a.index - b.index })
		given := uint64(0)
		for i := range parts {
			given += parts[i].gets
			if d := math.Abs(float64(parts[i].gets) - want[i]); d > float64(len(parts))+1e-6*want[i] {
				t.Fatalf("seed %d: part %d of %+v gets %d; the oracle says %.1f", seed, i, parts, parts[i].gets, want[i])
			}
		}
		if given != min(amount, wanted) {
			t.Fatalf("seed %d: %d given of %d; %d are wanted", seed, given, amount, wanted)
		}
	}
}

func BenchmarkShare(b *testing.B) {
	parts := make([]part, 10_000)
	for b.Loop() {
		for i := range parts {
			parts[i] = part{demand: uint64(i*7919%100_003) + 1, weight: uint64(i%5) + 1, index: i}
		}
		share(100_000_000, parts)
	}
}
