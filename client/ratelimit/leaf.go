package ratelimit

import (
	"math"
	"slices"
	"sync/atomic"

	"github.com/signalbox-dev/signalbox/protocol"
)

// belief is the part of a lease's length for which it is believed, from when the refresh was sent.
// The server counts the whole length: the rest is for clocks that differ.
const beliefNum, beliefDen = 85, 100

// unknown is the burst of a resource that the server has not described yet.
const unknown = math.MaxUint64

// leaf is one resource as a session uses it: the bucket of its lease, and what callers did. Calls
// of [Limiter.Allow] use the atomic fields alone; all others are the machine's.
type leaf struct {
	part *part
	path string

	bucket atomic.Pointer[bucket]
	floor  atomic.Pointer[bucket] // used without a lease, while the server cannot be reached; nil: deny
	shadow atomic.Bool
	most   atomic.Uint64 // amount that a call can have; unknown before the first answer
	queued atomic.Int32  // calls in the queue

	// Amounts since the limiter was opened.
	allowed, denied, waited, impossible atomic.Uint64
	need                                atomic.Uint64 // the largest amount of a call since the last refresh
	refused                             atomic.Uint64 // the largest amount that Allow refused since the machine looked
	poked                               atomic.Bool   // the machine knows that calls were refused

	users   int // limiters; 0: it was closed
	place   int // in the part's list
	err     error
	demand  demand
	queue   queue
	waiting uint64 // amount in the queue
	gaveUp  uint64 // amount of calls that left the queue
	lately  bool   // a call waited since the last look at the demand
	stale   bool   // the server is to describe it
	active  bool   // it is among the part's active ones

	statement   []byte
	rate, burst uint64 // of the lease
	length      uint64 // ms, of the lease or of one that it would get
	why         protocol.LimitWhy
	at          string
	limit       uint64 // rate of the resource
	floorRate   uint64
	remote      bool // the server gives out units

	asks    int    // requests for units that are open at the server
	units   uint64 // amount that Allow wants to have here; 0: none
	unitsAt int64  // when the server may have units
	unitsBy int64  // nobody wants them from then on

	stock, restocks *call  // whose units are here for Allow; which is open at the server for the next ones
	usedAt          int64  // when calls were last seen
	used            uint64 // attempts until then
}

// call is a call that waits in the queues of its leaves.
type call struct {
	leaves   []*leaf
	places   []place // in the queues of these
	amount   uint64
	spent    bool // the amount was used already
	finished bool
	done     chan struct{} // closed when it is admitted, or failed
	err      error

	heard    bool          // its first answer has come: the server's, or that of a lease
	answered chan struct{} // closed then; nil: nobody waits for that

	try  bool   // it does not wait at the server
	asks []*ask // of each tree whose server gives out units
}

// queue is the calls that wait at a leaf, in the order in which they came. Calls leave it at any
// place, as those do that give up.
type queue struct{ first, last *place }

// place is a call's in the queue of one of its leaves.
type place struct {
	call           *call
	previous, next *place
	spare          bool // the call waits for another leaf, and this one could give its amount
}

func (q *queue) add(p *place) {
	if p.previous = q.last; q.last == nil {
		q.first = p
	} else {
		q.last.next = p
	}
	q.last = p
}

func (q *queue) remove(p *place) {
	if p.previous == nil {
		q.first = p.next
	} else {
		p.previous.next = p.next
	}
	if p.next == nil {
		q.last = p.previous
	} else {
		p.next.previous = p.previous
	}
	p.previous, p.next = nil, nil
}

// calls yields the calls from a place on. The one that it has yielded may leave the queue.
func (p *place) calls(yield func(*place, *call) bool) {
	for p != nil {
		next := p.next
		if !yield(p, p.call) {
			return
		}
		p = next
	}
}

func newLeaf(p *part, path string) *leaf {
	l := &leaf{part: p, path: path, users: 1, stale: true, length: firstLength}
	l.most.Store(unknown)
	l.bucket.Store(newBucket(0, 0, 0, 0, math.MinInt64))
	return l
}

// leased reports whether there is a lease with a rate.
func (l *leaf) leased(now int64) bool {
	b := l.bucket.Load()
	return b.rate > 0 && now < b.until.Load()
}

// install puts a lease in place of the one before. A lease that follows one that is still believed
// keeps its level up to the new burst; any other begins empty. What comes with it is added.
func (l *leaf) install(now int64, x *protocol.LimitLease, until int64) {
	l.most.Store(x.Most)
	l.shadow.Store(x.Shadow)
	l.remote = x.State == protocol.LimitRemote
	l.statement = append(l.statement[:0], x.Statement...)
	l.why, l.at, l.limit, l.floorRate, l.length = x.Why, string(x.At), x.Limit, x.Floor, max(x.Length, 1)
	old := l.bucket.Load()
	if x.Burst == 0 && l.burst == 0 { // there may be units for Allow
		return
	}
	if x.Rate == old.rate && x.Burst == old.burst && x.Level == 0 && now < old.until.Load() {
		old.until.Store(until)
		return
	}
	ends := old.until.Load()
	level := old.close(now)
	if now >= ends {
		level = min(level, 0)
	}
	l.rate, l.burst = x.Rate, x.Burst
	burst := int64(min(x.Burst, protocol.MaxLimitBurstSize))
	level = max(min(level, burst-int64(min(x.Level, x.Burst))), -10*burst) + int64(min(x.Level, x.Burst))
	l.bucket.Store(newBucket(now, x.Rate, x.Burst, level, until))
}

// empty takes the units for Allow away, and returns what is left of them.
func (l *leaf) empty(now int64) (left int64) {
	left = l.bucket.Load().close(now)
	l.bucket.Store(newBucket(now, 0, 0, 0, math.MinInt64))
	return left
}

// drop gives up the lease.
func (l *leaf) drop(now int64) {
	l.statement, l.rate, l.burst, l.remote = nil, 0, 0, false
	l.empty(now)
}

// unreachable has the floor count, if there is one: the server cannot be reached.
func (l *leaf) unreachable(now int64) {
	if l.floorRate > 0 && l.floor.Load() == nil && now >= l.bucket.Load().until.Load() {
		l.floor.Store(newBucket(now, l.floorRate, max(l.floorRate, 1000), 0, math.MaxInt64))
	}
}

// deciding is the bucket that decides; nil: there is none.
func (l *leaf) deciding(now int64) *bucket {
	if b := l.bucket.Load(); now < b.until.Load() {
		return b
	}
	return l.floor.Load()
}

// decide takes an amount now, or not at all. It is local: no lock, no packet, no allocation.
func (l *leaf) decide(now int64, amount uint64) bool {
	for {
		b := l.deciding(now)
		if b == nil {
			return false
		}
		switch b.take(now, amount) {
		case admitted:
			return true
		case denied:
			return false
		}
	}
}

// attempt notes how large a call is.
func (l *leaf) attempt(amount uint64) {
	for {
		need := l.need.Load()
		if amount <= need || l.need.CompareAndSwap(need, amount) {
			return
		}
	}
}

// attempted is the amount of all calls.
func (l *leaf) attempted() uint64 { return l.allowed.Load() + l.denied.Load() + l.waiting + l.gaveUp }

// refuse counts an amount that Allow refuses.
func (l *leaf) refuse(amount uint64) {
	l.denied.Add(amount)
	for {
		most := l.refused.Load()
		if amount <= most || l.refused.CompareAndSwap(most, amount) {
			return
		}
	}
}

// spend counts an amount that was used already. False: there is no bucket to take it from, or one of a few units
// for Allow, which is no place for a debt: it is given up at any time.
func (l *leaf) spend(now int64, amount uint64) bool {
	for {
		b := l.deciding(now)
		if b == nil || b.burst == 0 || b.rate == 0 {
			return false
		}
		if b.spend(now, amount) != replaced {
			return true
		}
	}
}

// largest is the largest amount of a call lately.
func (l *leaf) largest() uint64 {
	need := l.need.Load()
	if c := l.head(); c != nil {
		need = max(need, c.amount)
	}
	return need
}

// lacking reports whether calls wait for units. One that waits for its first answer may have them.
func (l *leaf) lacking() bool {
	c := l.head()
	return c != nil && !l.queue.first.spare && (c.heard || l.asks == 0)
}

// elsewhere reports whether a call has its units at a leaf, or could have them, and waits for another one.
func (c *call) elsewhere(l *leaf) bool {
	return len(c.leaves) > 1 && (c.places[slices.Index(c.leaves, l)].spare ||
		slices.ContainsFunc(c.asks, func(a *ask) bool { return a.granted && slices.Contains(a.leaves, l) }))
}

// head is the first call that waits.
func (l *leaf) head() *call {
	if l.queue.first == nil {
		return nil
	}
	return l.queue.first.call
}

// sees notes when there were calls.
func (l *leaf) sees(now int64) {
	if n := l.attempted(); n != l.used || l.queued.Load() > 0 {
		l.used, l.usedAt = n, now
	}
}

// idle reports whether nobody has called for a while. A lease that is not used ends at the next
// refresh.
func (l *leaf) idle(now int64) bool {
	return l.queued.Load() == 0 && l.units == 0 && now-l.usedAt >= max(idleAfter, int64(l.length)*1e6/3)
}

// resting reports whether nothing is to be done for the leaf until somebody calls.
func (l *leaf) resting(now int64) bool {
	return !l.stale && l.burst == 0 && l.demand.reported == 0 && !l.demand.waiting && !l.poked.Load() && l.idle(now)
}

// report is what a refresh says of the leaf. Calls that waited since the last one count as ones that
// wait: a queue that is empty now and then would look like one that ends and begins.
func (l *leaf) report(now int64) protocol.LimitLeaf {
	l.sees(now)
	d := &l.demand
	d.need, d.waiting = l.largest(), l.lately || d.waited
	d.reported = d.look(now, l.attempted(), d.need)
	if !d.waiting && l.idle(now) {
		d.reported, d.average = 0, 0
		if l.burst > 0 {
			l.drop(now)
		}
	}
	f := protocol.LimitLeaf{Path: []byte(l.path), Demand: d.reported, Need: d.need,
		Allowed: l.allowed.Load(), Denied: l.denied.Load(), Waited: l.waited.Load(), Impossible: l.impossible.Load()}
	if d.waiting {
		f.Waiting = max(l.waiting, 1000) // a unit: whose call it was is not known any more
	}
	if c := l.head(); c != nil {
		f.Elsewhere = c.elsewhere(l)
	}
	l.lately, d.waited = l.lacking(), false
	l.need.Store(0)
	b := l.bucket.Load()
	if now < b.until.Load() && l.burst > 0 {
		f.Statement = append([]byte{}, l.statement...)
	}
	return f
}
