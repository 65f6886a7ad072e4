package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Back-off of connects. See R16.
const (
	connectBase     = 50 * time.Millisecond
	connectMax      = 5 * time.Second
	minConnLifetime = time.Second // a connection that was up for longer was no failure
)

// leaderTimeout is how long the connection to a leader is waited for before another replica is
// asked who leads now. The attempt goes on.
const leaderTimeout = 300 * time.Millisecond

// link is the way to one instance: its connection, or how the next one is made. One attempt runs at
// a time, and none unless somebody waits for it.
type link struct {
	instance    uint64   // 0: whichever answers
	addresses   []string // the first is the one that worked last
	conn        *Conn    // nil: there is none
	attempt     *Conn    // that is being made; nil: none is
	waiting     list     // requests that wait for the connection
	backoff     backoff
	pause       timer // before the next attempt
	connectedAt time.Duration
	tried       bool // there was an attempt
}

func (x *routes) newLink(instance uint64) *link {
	l := &link{instance: instance}
	l.pause.of = l
	x.links = append(x.links, l)
	return l
}

// link is the link to an instance.
func (x *routes) link(instance uint64) *link {
	l := x.byInstance[instance]
	if l == nil {
		l = x.newLink(instance)
		x.byInstance[instance] = l
	}
	return l
}

// await has a request wait for the connection, which is made.
func (l *link) await(e *Engine, r *Request) {
	l.waiting.pushBack(r)
	e.routes.fetch.needed(e)
	l.connect(e)
}

// connect begins an attempt, if none is under way and there is no connection.
func (l *link) connect(e *Engine) {
	if l.conn != nil || l.attempt != nil || l.pause.place != 0 {
		return
	}
	if !l.tried {
		l.tried = true
		l.dial(e)
		return
	}
	if e.now-l.connectedAt > 2*connectMax {
		l.backoff.failures = 0 // long ago
	}
	// A session's deadline is nearer than the longest pause.
	most := max(connectBase, e.timeouts.Or(8*connectMax)/8)
	e.timers.set(&l.pause, e.now+min(l.backoff.next(e, connectBase, connectMax), most))
}

// due ends the back-off.
func (l *link) due(e *Engine) { l.dial(e) }

// hurry ends the back-off: the instance was just named, so earlier failures say little.
func (l *link) hurry(e *Engine) {
	l.backoff.failures = 0
	if l.pause.place != 0 {
		e.timers.stop(&l.pause)
		l.dial(e)
	}
}

// dial begins an attempt. Without a map, that is asked for with its hello.
func (l *link) dial(e *Engine) {
	if l.conn == nil && l.attempt == nil && e.closed == nil {
		l.attempt = l.newConn(e, e.routes.addressesOf(l))
		if e.routes.table == nil {
			e.routes.fetch.begin(e, l.attempt)
		}
	}
}

// newConn has a connection made.
func (l *link) newConn(e *Engine, addresses []string) *Conn {
	c := &Conn{link: l, Addresses: addresses, window: 2, maxFrame: protocol.MaxFrameLen}
	c.keepAlive.of(c)
	c.requests.last = helloID
	e.conns = append(e.conns, c)
	e.ready.Dial = append(e.ready.Dial, c)
	return c
}

// addressesOf are the addresses to try for a link: that which worked last, the one in the map, and
// for the only instance there is every endpoint, which leads to it. Whichever instance answers is
// looked for at the endpoints and at all instances that are known.
func (x *routes) addressesOf(l *link) (list []string) {
	add := func(a string) {
		if a != "" && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	for _, a := range l.addresses {
		add(a)
	}
	if l.instance != 0 {
		add(x.table.addresses[l.instance])
	}
	if x.table == nil || l.instance == 0 || len(x.table.addresses) <= 1 {
		for _, a := range x.endpoints {
			add(a)
		}
	}
	if x.table != nil && l.instance == 0 {
		for _, i := range x.table.reply.Instances {
			add(i.Address)
		}
	}
	return list
}

// worked notes the address at which the instance answered. Of the former ones the endpoints are kept.
func (x *routes) worked(l *link, address string) {
	former := slices.DeleteFunc(l.addresses, func(a string) bool {
		return a == address || !slices.Contains(x.endpoints, a)
	})
	l.addresses = slices.Insert(former, 0, address)
}

// connected processes a connection whose hello was answered at an address. It belongs to the
// instance that answered. See R18.
func (x *routes) connected(e *Engine, c *Conn, address string) {
	wanted := c.link
	if wanted.attempt == c {
		wanted.attempt = nil
	}
	l := x.link(c.instance)
	c.link = l
	x.worked(l, address)
	l.connectedAt, l.tried = e.now, true
	if l.conn != nil {
		c.end(e, errSecondConn)
	} else {
		l.conn = c
		e.note(Notice{Kind: ConnMade, Instance: c.instance, Address: address})
		e.timers.stop(&l.pause)
		l.waiting.drain(e.send)
	}
	switch {
	case wanted.instance == 0:
		wanted.connectedAt = e.now
		wanted.waiting.drain(e.send)
	case wanted != l:
		wanted.connectedAt = e.now
		wanted.failed(e, fmt.Errorf("%w: %s is instance %d, not %d", ErrUnreachable, address, c.instance, wanted.instance))
	}
}

// lost is called when a connection is over, or could not be made.
func (l *link) lost(e *Engine, c *Conn, err error) {
	switch {
	case l.conn == c:
		l.conn = nil
		e.note(Notice{Kind: ConnLost, Instance: l.instance, Err: err})
		if e.now-l.connectedAt > minConnLifetime {
			l.backoff.failures = 0 // it lived
		}
	case l.attempt == c:
		l.attempt = nil
		e.note(Notice{Kind: ConnFailed, Instance: l.instance, Err: err})
		l.connectedAt = e.now
		c.failed = true
	}
}

// failed is the end of an attempt: what waits for the connection looks for another way. See R20.
func (l *link) failed(e *Engine, err error) {
	l.waiting.drain(func(r *Request) { e.unreachable(r, l, err) })
}
