package metrics

import (
	"sync/atomic"
	"time"
)

// distribution counts observations by size, for a histogram whose counts are added up: over
// goroutines that count without a lock, or from counts of a state machine. [Histogram] can neither
// be read nor added to. An observation is two additions, and allocates nothing.
//
// Values are integers in the unit of the metric's bounds: nanoseconds for a metric in seconds.
type distribution struct {
	bounds []uint64
	counts []atomic.Uint64 // one more than bounds
	sum    atomic.Uint64
}

// newDistribution makes one with the bounds of a metric.
func newDistribution(row *Metric) *distribution {
	return &distribution{bounds: row.Bounds, counts: make([]atomic.Uint64, len(row.Bounds)+1)}
}

// observe counts a value.
func (d *distribution) observe(v uint64) {
	d.counts[bucketOf(d.bounds, v)].Add(1)
	d.sum.Add(v)
}

// observeDuration counts a duration. A negative one counts as 0.
func (d *distribution) observeDuration(took time.Duration) { d.observe(uint64(max(0, took))) }

// bucketOf is the first bucket whose bound is not below v. The bounds are few, and most values are
// in the first half: a walk is faster than a binary search.
func bucketOf(bounds []uint64, v uint64) int {
	i := 0
	for i < len(bounds) && v > bounds[i] {
		i++
	}
	return i
}

// snapshot is a distribution at one moment.
type snapshot struct {
	counts []uint64 // one more than the metric's bounds; not cumulative
	count  uint64
	sum    uint64
}

func newSnapshot(row *Metric) snapshot { return snapshot{counts: make([]uint64, len(row.Bounds)+1)} }

// snapshot copies the counts. Observations that are made meanwhile may be missing.
func (d *distribution) snapshot() snapshot {
	s := snapshot{counts: make([]uint64, len(d.counts))}
	d.addTo(&s)
	return s
}

func (d *distribution) addTo(s *snapshot) {
	if d == nil {
		return
	}
	for i := range d.counts {
		n := d.counts[i].Load()
		s.counts[i] += n
		s.count += n
	}
	s.sum += d.sum.Load()
}

// add adds counts that were made elsewhere, such as in a shard's state machine.
func (d *distribution) add(counts []uint64, sum uint64) {
	for i, n := range counts {
		if n != 0 {
			d.counts[i].Add(n)
		}
	}
	d.sum.Add(sum)
}
