package busiest

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// Totals are an instance's counts since it started.
type Totals struct {
	Answered, Rejected uint64 // requests; a rejected one is answered too
}

// window is the span of a Rates, in samples.
const window = 5

// Rates measures an instance's rates a second and its latencies, over about the last 5 samples. Any
// goroutine may use it.
type Rates struct {
	Changes Latencies // requests that the log took, from the read of the first of a batch to its reply
	Writes  Latencies // writes to the log, with their sync

	mu      sync.Mutex
	samples [window + 1]sample // a ring
	taken   int
}

type sample struct {
	at      time.Duration
	totals  Totals
	changes counts
	writes  counts
}

// Sample is called once a second. now is monotonic.
func (r *Rates) Sample(now time.Duration, t Totals) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.samples[r.taken%len(r.samples)] = sample{at: now, totals: t, changes: r.Changes.counts(),
		writes: r.Writes.counts()}
	r.taken++
}

// Now are the rates of the last samples.
type Now struct {
	Requests, Rejected   float64 // a second
	ChangeP50, ChangeP99 time.Duration
	WriteP50, WriteP99   time.Duration
}

// Now is zero until there are two samples.
func (r *Rates) Now() (n Now) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken < 2 {
		return n
	}
	last := &r.samples[(r.taken-1)%len(r.samples)]
	first := &r.samples[max(0, r.taken-len(r.samples))%len(r.samples)]
	seconds := (last.at - first.at).Seconds()
	if seconds <= 0 {
		return n
	}
	perSecond := func(after, before uint64) float64 { return float64(after-before) / seconds }
	return Now{
		Requests:  perSecond(last.totals.Answered, first.totals.Answered),
		Rejected:  perSecond(last.totals.Rejected, first.totals.Rejected),
		ChangeP50: last.changes.quantile(&first.changes, 0.5), ChangeP99: last.changes.quantile(&first.changes, 0.99),
		WriteP50: last.writes.quantile(&first.writes, 0.5), WriteP99: last.writes.quantile(&first.writes, 0.99),
	}
}

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

// bucketOf returns the bucket of a latency of us µs: there are four for each power of two.
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

// quantile returns an upper bound of the quantile q of the latencies counted since before, or 0.
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

// HistoryPeriod is the time from one point of a History to the next, and historyPoints how many it
// keeps: a quarter of an hour.
const (
	HistoryPeriod = 15 * time.Second
	historyPoints = 60
)

// Point is the load that an instance led at one moment.
type Point struct {
	Grants            float64 // a second, since the point before
	Waiters, Sessions int
	LongestWait       time.Duration
}

// History keeps the Points of the last quarter of an hour. Any goroutine may use it.
type History struct {
	mu      sync.Mutex
	points  [historyPoints]Point // a ring
	taken   int
	at      time.Duration // of the last sample
	granted uint64        // at the last sample
	begun   bool
}

// Sample adds a point if HistoryPeriod has passed since the last one. now is monotonic. read returns
// the grants since the process began, and the other figures of the point; it is called only for a
// point that is due.
func (h *History) Sample(now time.Duration, read func() (granted uint64, p Point)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.begun && now-h.at < HistoryPeriod {
		return
	}
	granted, p := read()
	if h.begun {
		p.Grants = float64(granted-min(granted, h.granted)) / (now - h.at).Seconds()
		h.points[h.taken%historyPoints] = p
		h.taken++
	}
	h.begun, h.at, h.granted = true, now, granted
}

// Points returns the points, the oldest first.
func (h *History) Points() (list []Point) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := max(0, h.taken-historyPoints); i < h.taken; i++ {
		list = append(list, h.points[i%historyPoints])
	}
	return list
}
