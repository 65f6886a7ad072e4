package ratelimit

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

const maxRate = protocol.MaxLimitRate

// part is one of those who share an amount.
type part struct {
	demand    uint64
	guarantee uint64 // at most the demand counts
	weight    uint64 // 1 to protocol.MaxLimitWeight
	gets      uint64
	index     int
}

// share divides an amount among parts: guarantees first, and the rest by weight, to nobody more
// than it demands (weighted max-min). It changes the order of the parts. It gives out all that is
// demanded, up to the amount.
func share(amount uint64, parts []part) {
	for i := range parts {
		p := &parts[i]
		p.guarantee = min(p.guarantee, p.demand, amount)
		p.gets = p.guarantee
		amount -= p.guarantee
	}
	weights, wanted := uint64(0), uint64(0)
	for i := range parts {
		weights += parts[i].weight
		wanted = addUpTo(wanted, parts[i].demand-parts[i].gets, math.MaxUint64)
	}
	if wanted <= amount {
		for i := range parts {
			parts[i].gets = parts[i].demand
		}
		return
	}
	// Those that the least satisfies come first. What it leaves goes to those behind it.
	slices.SortFunc(parts, func(a, b part) int {
		if c := cmp.Compare((a.demand-a.gets)*b.weight, (b.demand-b.gets)*a.weight); c != 0 {
			return c
		}
		return cmp.Compare(a.index, b.index)
	})
	for i := range parts {
		p := &parts[i]
		gets := min(p.demand-p.gets, mulDiv(amount, p.weight, weights))
		p.gets += gets
		amount -= gets
		weights -= p.weight
	}
}

// mulDiv is a*b/c, rounded down, at most the greatest number; c is not 0.
func mulDiv(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return ^uint64(0)
	}
	q, _ := bits.Div64(hi, lo, c)
	return q
}

// addUpTo is a+b, at most the limit.
func addUpTo(a, b, limit uint64) uint64 {
	if sum := a + b; sum >= a && sum < limit {
		return sum
	}
	return limit
}

func lessBy(a, b uint64) uint64 { return a - min(a, b) }
