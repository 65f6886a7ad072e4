package delivery

import (
	"slices"
	"sync"
	"time"
)

// Flusher ends the windows of the hubs of an instance: one goroutine, asleep while no delta is
// pending.
type Flusher struct {
	now        func() time.Duration
	afterFlush func()

	mu   sync.Mutex
	hubs []*WatchHub

	wake chan struct{}
	stop chan struct{}
	done chan struct{}
}

// NewFlusher starts a flusher. now is the clock of its hubs and must advance in real time.
// afterFlush, which may be nil, runs after each round of flushes, on the flusher's goroutine: it
// wakes the event loops that write.
func NewFlusher(now func() time.Duration, after func()) *Flusher {
	p := &Flusher{
		now:        now,
		afterFlush: after,
		wake:       make(chan struct{}, 1),
		stop:       make(chan struct{}),
		done:       make(chan struct{}),
	}
	go p.run()
	return p
}

// Add adds a hub. The hub's options have the flusher's clock and Wake.
func (f *Flusher) Add(h *WatchHub) {
	f.mu.Lock()
	f.hubs = append(f.hubs, h)
	f.mu.Unlock()
	f.Wake(0)
}

// Now is the clock of the flusher's hubs.
func (f *Flusher) Now() time.Duration { return f.now() }

// Remove removes a hub. What is pending in it stays pending.
func (f *Flusher) Remove(h *WatchHub) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hubs = slices.DeleteFunc(f.hubs, func(x *WatchHub) bool { return x == h })
}

// Wake reports that a hub has something due; it fits WatchOptions.Wake. It never blocks.
func (f *Flusher) Wake(time.Duration) {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Close stops the goroutine and waits for it. What is pending stays pending.
func (f *Flusher) Close() {
	close(f.stop)
	<-f.done
}

func (f *Flusher) run() {
	defer close(f.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if wait, ok := f.flushDue(); ok {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
		select {
		case <-f.stop:
			return
		case <-f.wake:
		case <-timer.C:
		}
	}
}

// flushDue flushes the due hubs, and returns how long to sleep, if anything is pending.
func (f *Flusher) flushDue() (wait time.Duration, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	flushed := false
	for _, h := range f.hubs {
		due, pending := h.NextFlush()
		if pending && due <= now {
			h.Flush(now)
			flushed = true
			due, pending = h.NextFlush()
		}
		if pending && (!ok || due-now < wait) {
			wait, ok = due-now, true
		}
	}
	if flushed && f.afterFlush != nil {
		f.afterFlush()
	}
	return wait, ok
}
