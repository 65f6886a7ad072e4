package ratelimit

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// belief is the part of a lease's length for which it is believed, from when the refresh was sent.
// The server counts the whole length: the rest is for clocks that differ.
const beliefNum, beliefDen = 85, 100

// leaf is one resource as a session uses it: the bucket of its lease, and what callers did. It
// makes decisions at the times that it is given.
type leaf struct {
	path string

	bucket atomic.Pointer[bucket]
	floor  atomic.Pointer[bucket] // used without a lease; nil: deny
	shadow atomic.Bool
	remote atomic.Bool
	most   atomic.Uint64 // amount; 0 while it is not known

	// Amounts since the limiter was opened.
	attempted, allowed, denied, waited atomic.Uint64
	need                               atomic.Uint64 // the largest amount of a call since the last refresh

	mu        sync.Mutex
	err       error // why the resource cannot be used
	queue     []*waiter
	waiting   uint64 // amount in the queue
	queued    atomic.Int32
	lately    bool // a call waited since the last look at the demand
	statement []byte
	rate      uint64
	burst     uint64
	why       protocol.LimitWhy
	at        string
	floorRate uint64
	asking    bool // a goroutine acquires at the server
	timer     *time.Timer
	users     int // limiters; guarded by the participant
}

// waiter is a call that waits in the queue of its leaf.
type waiter struct {
	amount uint64
	spent  bool          // the amount was used already
	done   chan struct{} // closed when it is admitted, or failed
	err    error
}

func newLeaf(path string) *leaf {
	l := &leaf{path: path, users: 1}
	l.bucket.Store(newBucket(0, 0, 0, 0, math.MinInt64))
	return l
}

// install puts a lease in place of the one before. A lease that follows one that is still believed
// keeps its level up to the new burst; any other begins empty. mu is held.
func (l *leaf) install(now int64, x *protocol.LimitLease, until int64) {
	old := l.bucket.Load()
	l.most.Store(x.Most)
	l.shadow.Store(x.Shadow)
	l.remote.Store(x.State == protocol.LimitRemote)
	l.statement = append(l.statement[:0], x.Statement...)
	l.why, l.at = x.Why, string(x.At)
	if x.Floor != l.floorRate {
		if l.floorRate = x.Floor; x.Floor == 0 {
			l.floor.Store(nil)
		} else {
			l.floor.Store(newBucket(now, x.Floor, max(x.Floor, 1000), 0, math.MaxInt64))
		}
	}
	if x.Rate == old.rate && x.Burst == old.burst && now < old.until.Load() {
		old.until.Store(until)
		return
	}
	ends := old.until.Load()
	level := old.close(now)
	if now >= ends {
		level = min(level, 0)
	}
	l.rate, l.burst = x.Rate, x.Burst
	level = max(level, -10*int64(min(x.Burst, protocol.MaxLimitBurstSize)))
	l.bucket.Store(newBucket(now, x.Rate, x.Burst, level, until))
}

// drop gives up the lease. mu is held.
func (l *leaf) drop(now int64) {
	l.bucket.Load().close(now)
	l.statement, l.rate, l.burst = nil, 0, 0
	l.remote.Store(false)
	l.bucket.Store(newBucket(now, 0, 0, 0, math.MinInt64))
}

// decide takes an amount now, or not at all. It is local: no lock, no packet, no allocation.
func (l *leaf) decide(now int64, amount uint64) bool {
	for {
		b := l.bucket.Load()
		if now >= b.until.Load() {
			if b = l.floor.Load(); b == nil {
				return false
			}
		}
		switch b.take(now, amount) {
		case admitted:
			return true
		case denied:
			return false
		}
	}
}

// attempt counts a call.
func (l *leaf) attempt(amount uint64) {
	l.attempted.Add(amount)
	for {
		need := l.need.Load()
		if amount <= need || l.need.CompareAndSwap(need, amount) {
			return
		}
	}
}

// spend counts an amount that was used already. False: there is no bucket to take it from.
func (l *leaf) spend(now int64, amount uint64) bool {
	for {
		b := l.bucket.Load()
		if now >= b.until.Load() {
			if b = l.floor.Load(); b == nil {
				return false
			}
		}
		if b.rate == 0 && b.full.Load() != closed {
			return false
		}
		if b.spend(now, amount) != replaced {
			return true
		}
	}
}

// oweSpent has later calls wait for an amount that was used already, up to ten bursts. mu is held.
func (l *leaf) oweSpent(amount uint64) {
	most := l.most.Load()
	for owed := uint64(0); most > 0 && amount > 0 && owed < 10*most; owed += most {
		part := min(amount, most)
		l.enqueue(part).spent = true
		amount -= part
	}
}

// giveBack returns what decide took.
func (l *leaf) giveBack(amount uint64) { l.bucket.Load().giveBack(amount) }

// pump admits what can be admitted from the head of the queue on, and returns after how many ns to
// call it again; 0: when something changes. mu is held.
func (l *leaf) pump(now int64) (again int64) {
	for len(l.queue) > 0 {
		w := l.queue[0]
		if l.err == nil && !l.shadow.Load() && !l.decide(now, w.amount) {
			b := l.bucket.Load()
			if now >= b.until.Load() {
				if b = l.floor.Load(); b == nil {
					return 0
				}
			}
			if ns, ok := b.delay(now, w.amount); ok {
				return max(ns, int64(time.Microsecond))
			}
			return 0
		}
		l.finish(w, l.err)
	}
	return 0
}

// finish ends the wait of the first in the queue, which is admitted unless there is an error. mu is
// held.
func (l *leaf) finish(w *waiter, err error) {
	l.unqueue(w)
	if w.err = err; err == nil {
		l.allowed.Add(w.amount)
		if !w.spent {
			l.waited.Add(w.amount)
		}
	}
	close(w.done)
}

// unqueue takes a waiter out of the queue, and reports whether it was there. mu is held.
func (l *leaf) unqueue(w *waiter) bool {
	for i, x := range l.queue {
		if x == w {
			copy(l.queue[i:], l.queue[i+1:])
			l.queue[len(l.queue)-1] = nil
			l.queue = l.queue[:len(l.queue)-1]
			l.waiting -= w.amount
			l.queued.Store(int32(len(l.queue)))
			return true
		}
	}
	return false
}

// enqueue puts a call at the end of the queue. mu is held.
func (l *leaf) enqueue(amount uint64) *waiter {
	w := &waiter{amount: amount, done: make(chan struct{})}
	l.queue = append(l.queue, w)
	l.waiting += amount
	l.lately = true
	l.queued.Store(int32(len(l.queue)))
	return w
}

// largest is the largest amount of a call since the last refresh. mu is held.
func (l *leaf) largest() uint64 {
	need := l.need.Load()
	for _, w := range l.queue {
		need = max(need, w.amount)
	}
	return need
}

// report is what a refresh says of the leaf. Calls that waited since the last one count as ones that
// wait: a queue that is empty now and then would look like one that ends and begins. mu is held.
func (l *leaf) report(now int64, d *demand) protocol.LimitLeaf {
	d.need, d.waiting = l.largest(), l.lately || d.waited
	d.reported = d.look(now, l.attempted.Load(), d.need)
	f := protocol.LimitLeaf{Path: []byte(l.path), Demand: d.reported, Waiting: l.waiting, Need: d.need,
		Allowed: l.allowed.Load(), Denied: l.denied.Load(), Waited: l.waited.Load()}
	if d.waiting {
		f.Waiting = max(f.Waiting, 1)
	}
	l.lately, d.waited = len(l.queue) > 0, false
	l.need.Store(0)
	if now < l.bucket.Load().until.Load() {
		f.Statement = append([]byte{}, l.statement...)
	}
	return f
}
