// How long did operations take, and how is that counted without a cost?

package loadgen

import (
	"math"
	"math/bits"
	"sync/atomic"
)

// span is the measured part of a run: [from, until) by the run's clock. until is 0 while the end is
// not known.
type span struct {
	from  atomic.Int64
	until int64
	slot  int64 // width of a throughput slot, ns
}

// afterWarmUp is a time that lies after every warm-up.
const afterWarmUp = math.MaxInt64

// Recorder counts the work of one goroutine. Nothing in it is shared but the two counters that the
// progress line reads, so recording costs no more than the memory it touches, and that is little:
// with a thousand callers none of it is in the processor's cache when its turn comes. So durations
// are kept next to the counters first, and go to the histogram many at a time.
type Recorder struct {
	done       atomic.Uint64 // operations that succeeded, warm-up included
	span       *span
	ops        uint64
	last       int64         // end of the last operation that counted
	ends       int64         // until when the present slot lasts
	inSlot     uint32        // operations that ended in it
	numPending uint32        // of waiting
	failed     atomic.Uint64 // errors, warm-up included
	_          [8]byte
	pending    [maxPending]int64 // durations of operations that are not in the histogram yet

	op    int // series of the operation as a whole
	base  int // of the part of a mix that acts now
	hists []histogram
	late  histogram // of an open loop: from the actual start
	slots []uint32
	codes map[string]uint64
	_     [64]byte // keeps the counters of the next recorder off this one's cache line
}

// maxPending is how many durations wait.
const maxPending = 16

func newRecorder(s *span, series, op int) *Recorder {
	return &Recorder{span: s, op: op, hists: make([]histogram, series), codes: map[string]uint64{}, ends: math.MinInt64}
}

// Note counts a duration in one of the scenario's series. It ended at now.
func (r *Recorder) Note(series int, now, d int64) {
	if now >= r.span.from.Load() {
		r.hists[r.base+series].add(d)
	}
}

func (r *Recorder) ended(start, end int64) {
	r.done.Store(r.done.Load() + 1) // one writer
	if end < r.span.from.Load() {
		return
	}
	r.ops++
	r.last = end
	r.pending[r.numPending] = end - start
	if r.numPending++; r.numPending == maxPending {
		r.flush()
	}
	if end >= r.ends {
		r.nextSlot(end)
	}
	r.inSlot++
}

func (r *Recorder) flush() {
	for _, d := range r.pending[:r.numPending] {
		r.hists[r.op].add(d)
	}
	r.numPending = 0
}

// nextSlot ends a slot of the throughput, and begins the one of an operation that ended then.
func (r *Recorder) nextSlot(end int64) {
	r.endSlot()
	from := r.span.from.Load()
	i := (end - from) / r.span.slot
	if i >= maxSlots {
		r.ends = math.MaxInt64
		return
	}
	r.ends = from + (i+1)*r.span.slot
	for int64(len(r.slots)) <= i {
		r.slots = append(r.slots, 0)
	}
}

func (r *Recorder) endSlot() {
	if r.inSlot > 0 && r.ends > math.MinInt64 && r.ends < math.MaxInt64 {
		r.slots[len(r.slots)-1] += r.inSlot
	}
	r.inSlot = 0
}

// finish flushes the last values after the goroutine has ended.
func (r *Recorder) finish() {
	r.flush()
	r.endSlot()
}

// Fail counts an error.
func (r *Recorder) Fail(now int64, code string) {
	r.failed.Add(1)
	if now >= r.span.from.Load() {
		r.codes[code]++
	}
}

// maxSlots bounds the throughput over time of a run whose length is not known.
const maxSlots = 1 << 16

const (
	stepsPerOctave = 256 // steps of an octave: a duration is known to 0.4 %
	stepBits       = 8
	octaves        = 36 // up to 2^43 ns, two hours
	maxValue       = int64(1)<<43 - 1
)

// histogram is a histogram of durations in nanoseconds that only takes the memory of the octaves it
// has seen: a kilobyte each.
type histogram struct {
	octave   [octaves]*[stepsPerOctave]uint32
	n        uint64
	sum      float64
	min, max int64
}

func (c *histogram) add(d int64) {
	d = min(max(d, 0), maxValue)
	o, i := bucketOf(d)
	p := c.octave[o]
	if p == nil {
		p = new([stepsPerOctave]uint32)
		c.octave[o] = p
	}
	p[i]++
	if c.n == 0 || d < c.min {
		c.min = d
	}
	c.max = max(c.max, d)
	c.n++
	c.sum += float64(d)
}

// bucketOf of a value: octave 0 holds the values below 256 one by one, octave o those with 8+o bits
// in steps of 2^(o-1).
func bucketOf(v int64) (octave, index int) {
	if v < stepsPerOctave {
		return 0, int(v)
	}
	shift := bits.Len64(uint64(v)) - stepBits - 1
	return shift + 1, int(v>>shift) - stepsPerOctave
}

// bucketMiddle returns the middle of the values that share a bucket.
func bucketMiddle(octave, index int) int64 {
	if octave == 0 {
		return int64(index)
	}
	shift := octave - 1
	return int64(stepsPerOctave+index)<<shift + int64(1)<<shift/2
}

func (c *histogram) merge(o *histogram) {
	if o.n == 0 {
		return
	}
	for i, p := range o.octave {
		if p == nil {
			continue
		}
		if c.octave[i] == nil {
			c.octave[i] = new([stepsPerOctave]uint32)
		}
		for k, n := range p {
			c.octave[i][k] += n
		}
	}
	if c.n == 0 || o.min < c.min {
		c.min = o.min
	}
	c.max = max(c.max, o.max)
	c.n += o.n
	c.sum += o.sum
}

// each calls f for the durations that were counted, in rising order: each with how many times.
func (c *histogram) each(f func(d int64, n uint64)) {
	for o, p := range c.octave {
		if p == nil {
			continue
		}
		for i, n := range p {
			if n > 0 {
				f(min(max(bucketMiddle(o, i), c.min), c.max), uint64(n))
			}
		}
	}
}

// at returns the duration that p per cent of the durations, 0 to 100, do not exceed.
func (c *histogram) at(p float64) (at int64) {
	rank, seen := uint64(math.Ceil(p/100*float64(c.n)-1e-6)), uint64(0) // 99.9 per cent of 20,000 are 19,980
	c.each(func(d int64, n uint64) {
		if seen < max(rank, 1) {
			at = d
		}
		seen += n
	})
	return at
}
