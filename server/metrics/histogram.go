package metrics

import (
	"sync/atomic"
	"time"
)

// Histogram counts observations by size. An observation is two additions, and allocates nothing.
// It is for what is added up: over goroutines that count without a lock, or from counts of a state
// machine. The library's histogram can neither be read nor added to.
//
// Values are integers in the unit of the metric's bounds: nanoseconds for a metric in seconds.
type Histogram struct {
	bounds []uint64
	counts []atomic.Uint64 // one more than bounds
	sum    atomic.Uint64
}

// NewHistogram makes one with the bounds of a metric.
func NewHistogram(row *Metric) *Histogram {
	return &Histogram{bounds: row.Bounds, counts: make([]atomic.Uint64, len(row.Bounds)+1)}
}

// Observe counts a value.
func (h *Histogram) Observe(v uint64) {
	h.counts[bucketOf(h.bounds, v)].Add(1)
	h.sum.Add(v)
}

// ObserveDuration counts a duration. A negative one counts as 0.
func (h *Histogram) ObserveDuration(d time.Duration) { h.Observe(uint64(max(0, d))) }

// bucketOf is the first bucket whose bound is not below v. The bounds are few, and most values are
// in the first half: a walk is faster than a binary search.
func bucketOf(bounds []uint64, v uint64) int {
	i := 0
	for i < len(bounds) && v > bounds[i] {
		i++
	}
	return i
}

// Snapshot is a histogram at one moment.
type Snapshot struct {
	Counts []uint64 // one more than the metric's bounds; not cumulative
	Count  uint64
	Sum    uint64
}

func newSnapshot(row *Metric) Snapshot { return Snapshot{Counts: make([]uint64, len(row.Bounds)+1)} }

// Snapshot copies the counts. Observations that are made meanwhile may be missing.
func (h *Histogram) Snapshot() Snapshot {
	s := Snapshot{Counts: make([]uint64, len(h.counts))}
	h.addTo(&s)
	return s
}

func (h *Histogram) addTo(s *Snapshot) {
	if h == nil {
		return
	}
	for i := range h.counts {
		n := h.counts[i].Load()
		s.Counts[i] += n
		s.Count += n
	}
	s.Sum += h.sum.Load()
}

// add adds counts that were made elsewhere, such as in a shard's state machine.
func (h *Histogram) add(counts []uint64, sum uint64) {
	for i, n := range counts {
		if n != 0 {
			h.counts[i].Add(n)
		}
	}
	h.sum.Add(sum)
}
