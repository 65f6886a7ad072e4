package ratelimit

import (
	"math"
	"math/bits"

	"github.com/signalbox-dev/signalbox/protocol"
)

const maxRate = protocol.MaxLimitRate

// part is one of those who share an amount.
type part struct {
	demand    uint64
	guarantee uint64 // at most the demand counts
	weight    uint64 // 1 to protocol.MaxLimitWeight
	gets      uint64
	fair      uint64 // what it would get if it demanded all
	index     int
}

// share divides an amount among parts: guarantees first, and the rest by weight, to nobody more
// than it demands (weighted max-min). It changes the order of the parts. It gives out all that is
// demanded, up to the amount.
func share(amount uint64, parts []part) {
	weights, wanted := uint64(0), uint64(0)
	for i := range parts {
		p := &parts[i]
		p.gets = min(p.guarantee, p.demand, amount)
		amount -= p.gets
		weights += p.weight
		wanted = addUpTo(wanted, p.demand-p.gets, math.MaxUint64)
	}
	if wanted <= amount {
		for i := range parts {
			parts[i].gets, parts[i].fair = parts[i].demand, parts[i].demand
		}
		return
	}
	all := parts
	// Whom its part of the rest satisfies gets what it demands, and leaves more to the others. Each
	// round satisfies many parts or comes much nearer to the last level, so there are few rounds.
	for satisfied := true; satisfied; {
		rest, sum, open := amount, weights, 0
		weight, gets := uint64(0), uint64(0) // of the part before: mostly of this one, too
		for i := range parts {
			p := &parts[i]
			if p.weight != weight {
				weight, gets = p.weight, mulDiv(rest, p.weight, sum)
			}
			if need := p.demand - p.gets; need <= gets {
				p.gets = p.demand
				amount -= need
				weights -= p.weight
				continue
			}
			if open < i {
				parts[open], parts[i] = parts[i], parts[open]
			}
			open++
		}
		satisfied = open < len(parts)
		parts = parts[:open]
	}
	for i := range all {
		p := &all[i]
		p.fair = p.gets
		if need := mulDiv(amount, p.weight, weights); p.gets == p.demand {
			p.fair = max(p.gets, need)
		}
	}
	for i := range parts {
		p := &parts[i]
		gets := min(p.demand-p.gets, mulDiv(amount, p.weight, weights))
		p.gets += gets
		p.fair = max(p.fair, p.gets)
		amount -= gets
		weights -= p.weight
	}
	for i := range parts { // what rounding left
		p := &parts[i]
		gets := min(p.demand-p.gets, amount)
		p.gets += gets
		amount -= gets
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
