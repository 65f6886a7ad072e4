// Package fanout has the pace of an instance's messages to many connections alike, so that they
// take a bounded share of the processors. A [Pace] is an instance's. The transport's writers report
// to it how long a fan-out takes; the makers of frames ask it when, and how often.
//
// A write to a connection takes the server 6 us and its reader 8 us. From there come all figures:
//
//	connections   frames of one change       announcements to all
//	1             each 2.5 ms, the window    each 0.1 ms
//	5,000         each 20 ms                 each 500 ms, the longest pause
//	above         each 160 ms, and not       each 500 ms
//	              within three times as
//	              long as the last one took
package fanout

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// mostPrompt is the most connections to which changes may go out as often as their window ends,
	// 50 times a second. Beyond that they take whole cores of everybody, so more connections get
	// the longest window, 6 or 7 frames a second.
	mostPrompt    = 5000
	perConnection = 4 * time.Microsecond
	longestWindow = 160 * time.Millisecond

	// checkEvery is how often a fan-out looks whether it may begin.
	checkEvery = 10 * time.Millisecond

	// A fan-out takes a quarter of the time: it is followed by a rest of three times as long as it
	// took. 6,667 writes take 40 ms of a processor and the longest window is four times as much, so
	// that only a machine without a free processor rests for longer; longestRest bounds the rest
	// after a pause of the process.
	rests       = 3
	longestRest = 480 * time.Millisecond

	// An announcement takes some ten microseconds for each connection, here and at the client.
	// longestPause bounds the time between two: a call that waits in a queue learns by an
	// announcement alone that its bucket has moved.
	pausePerConnection = 100 * time.Microsecond
	longestPause       = 500 * time.Millisecond
)

// Many reports whether a fan-out to this many connections waits for the last one's rest.
func Many(connections int) bool { return connections > mostPrompt }

// Pause returns the least time between two announcements to this many connections.
func Pause(connections int) time.Duration {
	return min(time.Duration(connections)*pausePerConnection, longestPause)
}

// Pace is the pace of an instance.
type Pace struct {
	// PerConnection lengthens the window of changes for each connection. Default 4 us; negative
	// never lengthens it.
	PerConnection time.Duration

	now func() time.Duration

	mu      sync.Mutex // held to add a writer
	writers atomic.Pointer[[]*Writer]
}

// New returns a pace by a clock.
func New(now func() time.Duration) *Pace {
	p := &Pace{PerConnection: perConnection, now: now}
	p.writers.Store(new([]*Writer))
	return p
}

// Window returns how long changes for this many connections are merged: base, doubled until the
// changes take a bounded share of the processor.
func (p *Pace) Window(base time.Duration, connections int) time.Duration {
	if base <= 0 {
		return 0
	}
	need := min(time.Duration(connections)*p.PerConnection, longestWindow)
	if need > 0 && Many(connections) {
		need = longestWindow
	}
	for base < need && 2*base <= longestWindow {
		base *= 2
	}
	return base
}

// LongestWindow is the most that Window lengthens a window to.
func (p *Pace) LongestWindow() time.Duration { return longestWindow }

// Wait is 0 if a fan-out to many may begin, and else after how long to ask again: the last one is
// still being written, or was so lately that more of it would leave others too little time.
func (p *Pace) Wait() time.Duration {
	if list := *p.writers.Load(); len(list) > 0 {
		now := p.now()
		if slices.ContainsFunc(list, func(w *Writer) bool { return w.busy(now) }) {
			return checkEvery
		}
	}
	return 0
}

// Writer is one of those that write fan-outs beside each other. Each rests by itself: a short
// fan-out may shorten its own rest, but not that of another writer.
type Writer struct {
	now     func() time.Duration
	writing atomic.Bool
	began   time.Duration // of the goroutine that writes
	rest    atomic.Int64  // clock, ns: until when the next fan-out should wait
}

// Writer adds a writer.
func (p *Pace) Writer() *Writer {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &Writer{now: p.now}
	list := append(slices.Clone(*p.writers.Load()), w)
	p.writers.Store(&list)
	return w
}

// Begin records that frames wait to be written. It returns false if that was known.
func (w *Writer) Begin() bool { return w.writing.CompareAndSwap(false, true) }

// Start is called by the goroutine that begins to write.
func (w *Writer) Start() {
	w.began = w.now()
	w.Wrote()
}

// Wrote is called by it after each part, and before End.
func (w *Writer) Wrote() {
	now := w.now()
	w.rest.Store(int64(now + min(rests*(now-w.began), longestRest)))
}

// End records that everything is written.
func (w *Writer) End() { w.writing.Store(false) }

func (w *Writer) busy(now time.Duration) bool {
	return w.writing.Load() || now < time.Duration(w.rest.Load())
}
