package ratelimit

import (
	"math"
	"math/bits"
	"sync/atomic"
)

// bucket is a token bucket with the rate and burst of one lease, in one atomic word (GCRA): the
// time at which it is full again. Times are in 64ths of a nanosecond, so that the cost of a unit is
// exact enough at a hundred million units a second. Amounts are in thousandths of a unit, and rates
// in thousandths of a unit per second.
//
// A bucket without a rate has only the units that it was made with: its word is its level.
//
// It knows no clock: a decision is made at the time that the caller has read.
type bucket struct {
	rate, burst uint64
	tolerance   int64        // the time that fills it from empty
	full        atomic.Int64 // when it is full, or its level; closed: the bucket is replaced
	until       atomic.Int64 // ns: the lease is believed until then
}

const (
	ticks  = 64 // of a nanosecond
	second = int64(1e9) * ticks
	closed = math.MaxInt64
	// maxSpan bounds times in a bucket, 52 days: the slowest rate needs twelve for a unit.
	maxSpan = 1 << 58
)

// newBucket makes a bucket with a level, which may be below zero, at a time in ns.
func newBucket(now int64, rate, burst uint64, level int64, until int64) *bucket {
	b := &bucket{rate: rate, burst: burst}
	b.until.Store(until)
	if rate == 0 {
		b.full.Store(min(level, int64(burst)))
		return b
	}
	b.tolerance = span(burst, rate, false)
	b.full.Store(now*ticks + b.tolerance - b.span(min(level, int64(min(burst, math.MaxInt64)))))
	return b
}

// span is the time in which an amount comes in, rounded up or down.
func span(amount, rate uint64, up bool) int64 {
	if amount == 0 {
		return 0
	}
	hi, lo := bits.Mul64(amount, uint64(second))
	if hi >= rate {
		return maxSpan
	}
	q, r := bits.Div64(hi, lo, rate)
	if up && r > 0 {
		q++
	}
	return int64(min(q, maxSpan))
}

// span is the time that a level is worth: less than zero for a debt.
func (b *bucket) span(level int64) int64 {
	if level < 0 {
		return -span(uint64(-level), b.rate, true)
	}
	return span(uint64(level), b.rate, false)
}

// levelAt is what the bucket has, given when it is full: less than zero for a debt.
func (b *bucket) levelAt(now, full int64) int64 {
	if b.rate == 0 {
		return full
	}
	left := b.tolerance - max(full-now*ticks, 0)
	amount := func(t int64) int64 {
		hi, lo := bits.Mul64(uint64(t), b.rate)
		q, _ := bits.Div64(hi, lo, uint64(second))
		return int64(min(q, math.MaxInt64))
	}
	if left < 0 {
		return -amount(-left) - 1
	}
	return min(amount(left), int64(min(b.burst, math.MaxInt64)))
}

// verdict is what came of a decision.
type verdict uint8

const (
	admitted verdict = iota
	denied
	replaced // look for the bucket that took its place
)

// take takes an amount, if there is as much. It allocates nothing and takes no lock.
func (b *bucket) take(now int64, amount uint64) verdict {
	if b.rate == 0 {
		return b.takeUnits(amount)
	}
	if amount > b.burst {
		if b.full.Load() == closed {
			return replaced
		}
		return denied
	}
	cost := span(amount, b.rate, true)
	for {
		full := b.full.Load()
		if full == closed {
			return replaced
		}
		next := max(full, now*ticks) + cost
		if next-now*ticks > b.tolerance {
			return denied
		}
		if b.full.CompareAndSwap(full, next) {
			return admitted
		}
	}
}

func (b *bucket) takeUnits(amount uint64) verdict {
	for {
		level := b.full.Load()
		switch {
		case level == closed:
			return replaced
		case level < 0 || uint64(level) < amount:
			return denied
		case b.full.CompareAndSwap(level, level-int64(amount)):
			return admitted
		}
	}
}

// spend takes an amount that was used already, from a bucket with a rate. The level goes down to ten bursts below zero.
func (b *bucket) spend(now int64, amount uint64) verdict {
	for {
		full := b.full.Load()
		if full == closed {
			return replaced
		}
		cost := span(amount, b.rate, true)
		next := min(max(full, now*ticks)+cost, now*ticks+11*b.tolerance)
		if b.full.CompareAndSwap(full, max(next, full)) {
			return admitted
		}
	}
}

// giveBack returns an amount that was taken just now.
func (b *bucket) giveBack(amount uint64) {
	for {
		full := b.full.Load()
		next := full + int64(amount)
		if b.rate > 0 {
			next = full - span(amount, b.rate, false)
		}
		if full == closed || b.full.CompareAndSwap(full, next) {
			return
		}
	}
}

// delay is after how many ns an amount can be taken; false: never with this lease.
func (b *bucket) delay(now int64, amount uint64) (ns int64, ok bool) {
	if full := b.full.Load(); b.rate == 0 {
		return 0, full != closed && full >= 0 && uint64(full) >= amount
	} else if amount > b.burst {
		return 0, false
	}
	wait := max(b.full.Load(), now*ticks) + span(amount, b.rate, true) - b.tolerance - now*ticks
	return max(wait+ticks-1, 0) / ticks, true
}

// close ends the bucket, and returns its level at a time.
func (b *bucket) close(now int64) (level int64) {
	full := b.full.Swap(closed)
	if full == closed {
		return 0
	}
	return b.levelAt(now, full)
}
