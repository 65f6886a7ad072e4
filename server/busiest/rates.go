package busiest

import (
	"sync"
	"time"
)

// Totals are what an instance has done since it started.
type Totals struct {
	Answered, Rejected uint64 // requests; a rejected one is answered too
}

// window is how far back a Rates looks, in samples.
const window = 5

// Rates says what an instance does a second, and how long it takes, over about the last 5 samples.
// Any goroutine may use it.
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
