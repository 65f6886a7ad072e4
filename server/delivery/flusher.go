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
func (p *Flusher) Add(h *WatchHub) {
	p.mu.Lock()
	p.hubs = append(p.hubs, h)
	p.mu.Unlock()
	p.Wake(0)
}

// Now is the clock of the flusher's hubs.
func (p *Flusher) Now() time.Duration { return p.now() }

// Remove removes a hub. What is pending in it stays pending.
func (p *Flusher) Remove(h *WatchHub) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hubs = slices.DeleteFunc(p.hubs, func(x *WatchHub) bool { return x == h })
}

// Wake reports that a hub has something due; it fits WatchOptions.Wake. It never blocks.
func (p *Flusher) Wake(time.Duration) {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Close stops the goroutine and waits for it. What is pending stays pending.
func (p *Flusher) Close() {
	close(p.stop)
	<-p.done
}

func (p *Flusher) run() {
	defer close(p.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if wait, ok := p.flushDue(); ok {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
		select {
		case <-p.stop:
			return
		case <-p.wake:
		case <-timer.C:
		}
	}
}

// flushDue flushes what is due and returns how long to sleep, if anything is pending.
func (p *Flusher) flushDue() (wait time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	flushed := false
	for _, h := range p.hubs {
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
	if flushed && p.afterFlush != nil {
		p.afterFlush()
	}
	return wait, ok
}
