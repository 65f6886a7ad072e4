package leaderdriver

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/shard/replica/wakeup"
)

// Term is a leadership of this replica: its own epoch is applied.
type Term struct {
	Epoch   uint64 // of the shard's register: raft's term << 16 | a number
	LogTime uint64 // ms, after the entry that applied the epoch
	Now     uint64 // ms of the host's clock, at that time
}

// Number is raft's number of the term.
func (t Term) Number() uint64 { return t.Epoch >> 16 }

// Part is a part of a leader's work besides applying the log.
//
// Start and Stop are called in log order, on whatever goroutine the leadership begins or ends, and
// the log waits: they may wait for the part's lock, but not for other work. A Start may follow
// another, whose leadership it ends. Tick, Next and Close are called on the part's goroutine.
type Part interface {
	Start(t Term)
	Stop()
	// Tick does the queued and the due work. timeout: the time that Next gave has passed.
	Tick(timeout bool)
	// Next returns the time until Tick has work that no wake-up announces; has is false without
	// any.
	Next() (in time.Duration, has bool)
	// Close ends the part, and answers its queue. Later work is refused.
	Close()

	alarm() *Alarm
}

// Alarm wakes a part's goroutine. A part embeds it.
type Alarm struct {
	wakeup.Wakeup
	began time.Time
	at    atomic.Int64 // when the goroutine's timer fires, in ns since began; 0: it runs, or has none
}

func newAlarm() Alarm { return Alarm{Wakeup: wakeup.New(), began: time.Now()} }

func (a *Alarm) alarm() *Alarm { return a }

// WakeWithin has Tick called after in at the latest, and Next before that. It wakes the goroutine
// unless the goroutine's timer fires earlier anyway.
func (a *Alarm) WakeWithin(in time.Duration) {
	if at := a.at.Load(); at == 0 || a.after(in) < at {
		a.Wake()
	}
}

func (a *Alarm) after(in time.Duration) int64 { return int64(time.Since(a.began) + in) }

// Driver begins and ends the leaderships of a replica in all parts.
type Driver struct {
	parts []Part

	mu     sync.Mutex
	closed bool // a goroutine has ended: no part begins any more
}

// New returns the driver of a replica.
func New(parts ...Part) *Driver { return &Driver{parts: parts} }

// Begin begins a leadership. Begin and End are called in log order, while the log waits.
func (d *Driver) Begin(t Term) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	for _, p := range d.parts {
		p.Start(t)
		p.alarm().Wake()
	}
}

// End ends it.
func (d *Driver) End() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.parts {
		p.Stop()
		p.alarm().Wake()
	}
}

// Loops are the goroutines of the parts. Each ends when stop is closed.
func (d *Driver) Loops(stop <-chan struct{}) (list []func()) {
	for _, p := range d.parts {
		list = append(list, func() { d.run(p, stop) })
	}
	return list
}

// run ticks a part. A wake-up never puts off the timer: it may come all the time.
func (d *Driver) run(p Part, stop <-chan struct{}) {
	a := p.alarm()
	timer := time.NewTimer(0)
	timer.Stop()
	defer timer.Stop()
	at := int64(0) // as a.at, but it stays while the part ticks
	for {
		timeout := false
		select {
		case <-a.Wakeup:
		case <-timer.C:
			timeout, at = true, 0
		case <-stop:
			d.close()
			p.Close()
			return
		}
		a.at.Store(0)
		p.Tick(timeout)
		if in, has := p.Next(); !has {
			timer.Stop()
			at = 0
		} else if next := a.after(in); at == 0 || next < at {
			timer.Reset(in)
			at = next
		}
		a.at.Store(at)
	}
}

func (d *Driver) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
}
