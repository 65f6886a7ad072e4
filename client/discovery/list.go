package discovery

import (
	"cmp"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

// viewInterval is the least time between two views, but for the first after a quiet time.
const viewInterval = 20 * time.Millisecond

// list is the copy of a service's members. It is pure: its inputs are the events of a watch and the
// time; its output is what is shown, and when it wants to be woken.
//
//   - What is shown never becomes empty because the cluster is away: only events of a stream that is
//     live, and complete snapshots, remove anything.
//   - Nor does it collapse because the cluster returns: members may have to register again then. For
//     the time hold after a snapshot, what was shown before is held if most of it is missing.
//   - incoming is what the watch has said. It equals the server's list whenever a stream is live.
type list struct {
	hold time.Duration // how long after a snapshot what is missing may stay

	incoming  []*entry       // by token
	addrs     map[string]int // how many of incoming have an address
	before    []*Endpoint    // shown when the stream was lost
	holdUntil time.Time      // until when before counts
	held      map[string]time.Time
	all       []*Endpoint // shown: one for each address, by token
	ignored   int
	known     bool
	live      bool
	since     time.Time // since when live is as it is
	err       error     // why nothing is read

	changed       bool // what is shown is not announced yet
	announced     time.Time
	announcements uint64
	stale         bool // out is to be made of incoming when somebody asks; nothing is held then
	version       uint64
	out           *published // see current

	interruptions uint64
}

// entry is an owner of the service's semaphore.
type entry struct {
	token    uint64
	endpoint *Endpoint // nil: its data is not that of a member
}

// published is the state that all handles of a copy share. It does not change.
type published struct {
	all     []*Endpoint
	version uint64
	known   bool
	live    bool
	since   time.Time
	ignored int
	err     error
}

func newList(now time.Time, hold time.Duration) *list {
	return &list{hold: hold, since: now, out: &published{since: now}, held: map[string]time.Time{},
		addrs: map[string]int{}}
}

// begin notes that another watch begins, which knows nothing of what was said before.
func (l *list) begin() {
	l.incoming = nil
	clear(l.addrs)
}

// event takes in a step of the watch.
func (l *list) event(now time.Time, ev *client.Event) {
	switch ev.Kind {
	case client.EventInterrupted:
		l.notLive(now)
	case client.EventSynced:
		l.synced(now)
	case client.EventDeleted:
		l.begin()
	case client.EventChanged:
		for i := range ev.Removed {
			if p, found := l.find(ev.Removed[i].Token); found {
				l.count(l.incoming[p], -1)
				l.incoming = slices.Delete(l.incoming, p, p+1)
			}
		}
		l.put(ev.Added)
		l.put(ev.Updated)
	}
	if l.live && (ev.Kind == client.EventChanged || ev.Kind == client.EventDeleted) {
		l.changed = true
	}
	l.tick(now)
}

// failed notes that nothing can be read: the node does not exist, a right is missing.
func (l *list) failed(now time.Time, err error) {
	l.notLive(now)
	l.err, l.changed = err, true
	l.tick(now)
}

// ended is failed for the last time: nothing wakes the list any more.
func (l *list) ended(now time.Time, err error) {
	l.announced = now.Add(-viewInterval)
	l.failed(now, err)
}

func (l *list) notLive(now time.Time) {
	if !l.live {
		return
	}
	l.show(now)
	l.live, l.since, l.changed, l.stale = false, now, true, false
	l.interruptions++
}

func (l *list) find(token uint64) (place int, found bool) {
	return slices.BinarySearchFunc(l.incoming, token, func(x *entry, token uint64) int {
		return cmp.Compare(x.token, token)
	})
}

func (l *list) put(owners []client.Owner) {
	for i := range owners {
		o := &owners[i]
		if o.Count == client.Max {
			continue // a lock or a leader of the same name
		}
		x := &entry{token: o.Token}
		if e, err := ParseEndpoint(o.Data); err == nil {
			e.Token = o.Token
			x.endpoint = e
		}
		l.count(x, 1)
		p, found := l.find(o.Token)
		if found {
			l.count(l.incoming[p], -1)
			l.incoming[p] = x
		} else {
			l.incoming = slices.Insert(l.incoming, p, x)
		}
	}
}

// count counts an entry, or one less, by its address.
func (l *list) count(x *entry, n int) {
	if x.endpoint == nil {
		return
	}
	if l.addrs[x.endpoint.Addr] += n; l.addrs[x.endpoint.Addr] == 0 {
		delete(l.addrs, x.endpoint.Addr)
	}
}

// synced compares a complete snapshot with what is shown.
func (l *list) synced(now time.Time) {
	if l.live {
		return
	}
	l.before, l.holdUntil = l.all, now.Add(l.hold)
	if !l.collapsed(now) {
		clear(l.held)
	}
	l.expire(now)
	l.known, l.live, l.since, l.err, l.changed = true, true, now, nil, true
	l.show(now)
}

// collapsed says that, shortly after an interruption, more than half of at least four endpoints that
// were shown before are missing, or all.
func (l *list) collapsed(now time.Time) bool {
	if !now.Before(l.holdUntil) {
		return false
	}
	missing := 0
	for _, e := range l.before {
		if l.addrs[e.Addr] == 0 {
			missing++
		}
	}
	all := len(l.before)
	return missing > 0 && (missing == all || all >= 4 && 2*missing > all)
}

// expire ends what was held long enough.
func (l *list) expire(now time.Time) {
	for addr, until := range l.held {
		if !until.After(now) {
			delete(l.held, addr)
			l.all = slices.DeleteFunc(slices.Clone(l.all), func(e *Endpoint) bool { return e.Addr == addr })
			l.changed = true
		}
	}
}

// show makes what is shown of what the watch said: the newest member of each address, and what is
// held.
func (l *list) show(now time.Time) {
	if l.collapsed(now) {
		for _, e := range l.all {
			if _, held := l.held[e.Addr]; !held && l.addrs[e.Addr] == 0 {
				l.held[e.Addr] = l.holdUntil
			}
		}
	}
	all := make([]*Endpoint, 0, len(l.incoming)+len(l.held))
	l.ignored = 0
	var twice map[string]bool // addresses of several members, once the newest is shown
	for _, x := range slices.Backward(l.incoming) {
		if x.endpoint == nil {
			l.ignored++
			continue
		}
		if addr := x.endpoint.Addr; len(l.addrs) < len(l.incoming)-l.ignored && l.addrs[addr] > 1 {
			if twice[addr] {
				continue
			}
			if twice == nil {
				twice = map[string]bool{}
			}
			twice[addr] = true
		}
		all = append(all, x.endpoint)
	}
	if len(l.held) > 0 {
		for _, e := range l.all {
			switch _, held := l.held[e.Addr]; {
			case held && l.addrs[e.Addr] > 0:
				delete(l.held, e.Addr) // it has returned
			case held:
				all = append(all, e)
			}
		}
		slices.SortFunc(all, func(a, b *Endpoint) int { return cmp.Compare(b.Token, a.Token) })
	}
	slices.Reverse(all)
	l.all = all
}

// tick removes what was held long enough, and announces what changed, when it is time. What is shown
// is made when somebody asks for it, except while members may be held: that depends on what was shown
// before.
func (l *list) tick(now time.Time) {
	if l.live {
		l.expire(now)
	}
	if !l.changed || l.announcements > 0 && now.Sub(l.announced) < viewInterval {
		return
	}
	l.changed = false
	if l.stale = l.live && len(l.held) == 0 && !now.Before(l.holdUntil); !l.stale {
		if l.live {
			l.show(now)
		}
		if !l.publish() {
			return
		}
	}
	l.announced = now
	l.announcements++
}

// current returns the state that all handles share.
func (l *list) current() *published {
	if l.stale {
		l.stale = false
		l.show(l.announced)
		l.publish()
	}
	return l.out
}

// publish makes out of what is shown. It reports whether that is another one.
func (l *list) publish() bool {
	o := l.out
	if l.version > 0 && slices.Equal(l.all, o.all) && l.ignored == o.ignored && l.known == o.known && l.live == o.live &&
		l.since.Equal(o.since) && l.err == nil && o.err == nil {
		return false
	}
	l.version++
	l.out = &published{all: l.all, version: l.version, known: l.known, live: l.live, since: l.since, ignored: l.ignored,
		err: l.err}
	return true
}

// next is when tick has something to do; the zero time is never.
func (l *list) next() time.Time {
	var next time.Time
	if l.changed {
		next = l.announced.Add(viewInterval)
	}
	if l.live {
		for _, until := range l.held {
			if next.IsZero() || until.Before(next) {
				next = until
			}
		}
	}
	return next
}
