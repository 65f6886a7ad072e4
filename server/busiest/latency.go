package busiest

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Latencies counts durations in buckets of at most a quarter of their size, from 1 µs to half an
// hour. Any goroutine may add to it, for one uncontended addition.
type Latencies struct {
	n [latencyBuckets]atomic.Uint64
}

const latencyBuckets = 128

// Add counts n things that took d each.
func (l *Latencies) Add(d time.Duration, n int) {
	l.n[bucketOf(uint64(max(0, d)/time.Microsecond))].Add(uint64(n))
}

// bucketOf is the bucket of so many µs: four for each power of two.
func bucketOf(us uint64) int {
	if us < 4 {
		return int(us)
	}
	power := bits.Len64(us) - 3
	return min(4*power+int(us>>power), latencyBuckets-1)
}

// upperBound is the first number of µs above a bucket.
func upperBound(bucket int) time.Duration {
	if bucket < 4 {
		return time.Duration(bucket+1) * time.Microsecond
	}
	power := bucket/4 - 1
	return time.Duration(uint64(bucket%4+5)<<power) * time.Microsecond
}

// counts are the counts of a moment.
type counts [latencyBuckets]uint64

func (l *Latencies) counts() (c counts) {
	for i := range c {
		c[i] = l.n[i].Load()
	}
	return c
}

// quantile is an upper bound of the share q of what was counted since before, 0 for nothing.
func (c *counts) quantile(before *counts, q float64) time.Duration {
	total := uint64(0)
	for i := range c {
		total += c[i] - before[i]
	}
	if total == 0 {
		return 0
	}
	rank := uint64(float64(total)*q) + 1
	seen := uint64(0)
	for i := range c {
		if seen += c[i] - before[i]; seen >= min(rank, total) {
			return upperBound(i)
		}
	}
	return 0
}
