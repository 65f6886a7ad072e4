package core

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// routes is where requests go: bucket -> shard -> the instance that leads it -> its connection.
type routes struct {
	endpoints  []string
	table      *table // nil: there is no map yet
	links      []*link
	byInstance map[uint64]*link
	bootstrap  *link  // to whichever instance answers at the endpoints
	generation uint64 // counts announcements
	unmapped   list   // requests whose bucket or shard no map has
	behind     bool   // a request waits for an instance to get the map that this client has
	fetch      mapFetch
	spread     uint64 // chooses the replicas that this client reads from
	memories   map[uint64]*shardMemory
	recent     *shardMemory // the one that was used last

	// What is to be done after the step; see resolve.
	queued    bool    // it is in Engine.tasks
	mapped    bool    // there is another map
	first     bool    // and there was none before
	announced bool    // the map or a leader is another one
	hurry     []*link // to leaders that were just named
	refusal   error   // no map can be had; nil: it can
}

func newRoutes(endpoints []string, spread uint64) routes {
	x := routes{
		endpoints: endpoints, byInstance: make(map[uint64]*link), spread: spread, memories: make(map[uint64]*shardMemory),
	}
	x.bootstrap = x.newLink(0)
	x.bootstrap.addresses = slices.Clone(endpoints)
	return x
}

var (
	errSecondConn    = errors.New("another connection to the same instance is in use")
	errLeaderTimeout = fmt.Errorf("%w within %s", ErrUnreachable, leaderTimeout)
)

// destination finds the connection of a request. It is nil if there is none now: the request is
// then in the list of what it waits for.
type destination func(*Engine, *Request) *Conn

// toConn is the destination of what goes out on one connection, or not at all.
func toConn(c *Conn) destination { return func(*Engine, *Request) *Conn { return c } }

// anyInstance is the connection that sent something last, since another may be cut off.
func anyInstance(e *Engine, r *Request) *Conn {
	r.shard = 0
	if c := liveliest(e, nil); c != nil {
		return c
	}
	e.routes.bootstrap.await(e, r)
	return nil
}

// liveliest is the connection that sent something last, other than one; nil: there is none.
func liveliest(e *Engine, other *Conn) (best *Conn) {
	for _, c := range e.conns {
		if c.up && c != other && (best == nil || c.heard > best.heard) {
			best = c
		}
	}
	return best
}

// atBucket is the leader of the shard that owns the request's bucket.
func atBucket(e *Engine, r *Request) *Conn {
	return e.routes.toLeader(e, r, e.routes.table.tier(r.tier).owner(uint32(r.arg)))
}

// toLeader is the connection to the leader of a shard.
func (x *routes) toLeader(e *Engine, r *Request, w *shardRoute) *Conn {
	if w == nil {
		r.shard = 0
		if x.table != nil {
			r.last = errNoTier(r.tier)
		}
		x.awaitMap(e, r)
		return nil
	}
	r.shard = w.shard
	l := w.link
	if l != nil && l.conn != nil {
		return l.conn
	}
	if l == nil {
		if x.nextReplica(e, w, 0); w.link == nil {
			x.awaitMap(e, r)
			return nil
		}
		if l = w.link; l.conn != nil {
			return l.conn
		}
	}
	if len(w.replicas) > 1 {
		return x.within(e, r, l)
	}
	r.awaits = l
	l.await(e, r)
	return l.conn
}

// toReplica is the connection to a replica of a shard: so far behind the one that this client chose
// at random for good, so that clients are spread. After a failure it is the leader, and then one
// replica after the other. See R22.
func (x *routes) toReplica(e *Engine, r *Request, w *shardRoute, after uint64) *Conn {
	if n := uint64(len(w.replicas)); n > 1 && r.retry.failures != 1 {
		r.shard = w.shard
		return x.within(e, r, x.chosen(w, after+uint64(max(0, r.retry.failures-1))))
	}
	return x.toLeader(e, r, w)
}

// chosen is the link to the replica that this client chose, or to another one after it. The order of
// the others is the client's too, so that those who lose one replica are spread over all others. The
// map may name none: then it is to the leader.
func (x *routes) chosen(w *shardRoute, after uint64) *link {
	n := uint64(len(w.replicas))
	if n == 0 {
		return x.link(w.leader)
	}
	i := x.spread%n + w.shard
	if k := after % n; k > 0 {
		i += 1 + (x.spread/n+k-1)%(n-1)
	}
	return x.link(w.replicas[i%n])
}

// within is the connection of a link that is not the only one to ask: it is not waited for long.
func (x *routes) within(e *Engine, r *Request, l *link) *Conn {
	if l.conn == nil {
		r.delay.of = r
		e.timers.set(&r.delay, e.now+leaderTimeout)
		r.awaits = l
		l.await(e, r)
	}
	return l.conn
}

// awaitMap has a request wait for a map that has its bucket. See R21.
func (x *routes) awaitMap(e *Engine, r *Request) {
	x.unmapped.pushBack(r)
	x.fetch.begin(e, nil)
}

// setLeader makes an instance the one where a shard is looked for.
func (x *routes) setLeader(w *shardRoute, leader uint64) { w.leader, w.link = leader, x.link(leader) }

// nextReplica looks for a shard at another replica, if from is still where it is looked for. It
// mostly takes one that there is a connection to, because that can be asked at once.
func (x *routes) nextReplica(e *Engine, w *shardRoute, from uint64) {
	n := len(w.replicas)
	if w.leader != from || n == 0 || n == 1 && w.replicas[0] == from {
		return
	}
	at := slices.Index(w.replicas, from)
	var next, live uint64
	for i := range n {
		id := w.replicas[(at+1+i)%n]
		if id == from {
			continue
		}
		next = cmp.Or(next, id)
		if l := x.byInstance[id]; l != nil && live == 0 && l.conn != nil {
			live = id
		}
	}
	if live != 0 && e.random(4) != 0 {
		next = live
	}
	x.setLeader(w, next)
}

// learnLeader processes an instance's word about a shard's leader and its raft term. Older terms
// are ignored. A newer term, or word from the leader itself, wakes what waits. True: the term is
// newer. See R20.
func (x *routes) learnLeader(e *Engine, w *shardRoute, from, leader, term uint64) (moved bool) {
	if leader == 0 || term < w.term || !slices.Contains(w.replicas, leader) {
		return false
	}
	moved = term > w.term
	isNew := moved || from == leader
	w.term = term
	x.setLeader(w, leader)
	if moved {
		x.leaderMoved(e, w)
	}
	if isNew {
		x.announce(e)
		x.hurry = append(x.hurry, w.link)
	}
	return moved
}

// announce has wake called after the step, because the map or a leader is another one.
func (x *routes) announce(e *Engine) {
	x.generation++
	x.announced = true
	x.enqueue(e)
}

func (x *routes) enqueue(e *Engine) { e.enqueue(x, &x.queued) }

// resolve implements task: what is new of the routes concerns what waits, and what follows a shard.
func (x *routes) resolve(e *Engine) {
	x.queued = false
	if err := x.refusal; err != nil {
		x.refusal = nil
		x.unmapped.drain(func(r *Request) { e.refusedForGood(r, err) })
	}
	if x.mapped {
		x.unmapped.drain(e.send)
	}
	if x.announced {
		x.announced = false
		x.wake(e)
	}
	if x.mapped {
		for _, s := range slices.Clone(e.subscriptions) {
			if !s.ended {
				s.of.layout(e)
			}
		}
		if !x.first { // while buckets moved, nobody reported leases that were taken away
			for _, s := range slices.Clone(e.named) {
				s.confirm(e)
			}
		}
		x.mapped, x.first = false, false
	}
	for _, l := range x.hurry {
		if l.conn == nil {
			l.hurry(e)
		}
	}
	x.hurry = x.hurry[:0]
}

// wake wakes what waits: paused tries, requests that wait for a connection, and acquires in the queue
// of a semaphore that is served elsewhere.
func (x *routes) wake(e *Engine) {
	e.paused.drain(func(r *Request) {
		if r.retry.paused == x.generation { // the announcement came before its pause
			e.paused.pushBack(r)
			return
		}
		r.retry.failures = 1 // not 0: announcements may name an instance that cannot answer, again and again
		e.send(r)
	})
	for _, l := range x.links {
		if !l.waiting.empty() {
			l.waiting.drain(e.send)
		}
	}
	for _, c := range slices.Clone(e.conns) {
		c.inQueue.each(func(r *Request) {
			if x.resultMoved(r, c) {
				e.step(r, inLost, nil)
			}
		})
	}
}

// resultMoved reports whether the result of a queued acquire comes from elsewhere than the
// connection that it was sent on.
func (x *routes) resultMoved(r *Request, c *Conn) bool {
	w := x.table.tier(r.tier).owner(uint32(r.arg))
	return w == nil || w.shard != r.shard || w.leader != c.instance
}

// verdict is when a request is sent again that was refused for now.
type verdict uint8

const (
	later    verdict = iota // after a pause
	atOnce                  // to somebody who is likely to do better
	afterMap                // when the map that is being fetched is there
)

// refused learns from the refusal of a request that was sent on a connection.
func (x *routes) refused(e *Engine, r *Request, c *Conn, err *protocol.Error) verdict {
	w := x.table.shard(r.shard)
	switch {
	case w == nil:
	case err.Status == protocol.StatusUnavailable && r.retry.failures > 0:
		x.nextReplica(e, w, c.instance)
	case err.Status == protocol.StatusWrongShard:
		return x.followRefusal(e, r, w, c, err)
	}
	return later
}

// maxBehindTries is how many tries in a row a shard's leader may answer by an older map before
// another replica is asked. A new map is on all instances within milliseconds, but a leader that is
// cut off never gets it, and may have been replaced.
const maxBehindTries = 3

// followRefusal uses what an instance says about a bucket that it does not serve: which shard owns
// the bucket, which instance leads that shard, and how new its map is. asked is the shard that was
// looked for there.
//
// Unless its map is newer nothing is fetched. The bucket moves, or is not served yet, or the
// instance has an older map than this client; the end of each is announced. Another leader is
// looked for if the instance has the shard and knows no leader, or if it has an older map for
// maxBehindTries. See R21.
func (x *routes) followRefusal(e *Engine, r *Request, asked *shardRoute, c *Conn, err *protocol.Error) verdict {
	bucket := uint32(r.arg)
	owner := x.table.shards[err.Shard]
	newer := err.MapVersion > x.table.version
	if newer {
		x.fetch.announced(e, err.MapVersion, c, true)
		if owner == nil && err.Shard != 0 {
			return afterMap // that map has more shards
		}
	}
	learned := false
	if owner != nil && err.Master != 0 && err.Master != c.instance {
		learned = x.learnLeader(e, owner, c.instance, err.Master, err.Term)
	}
	if newer && x.table.learnOwner(asked, bucket, owner, err.MapVersion) {
		learned = true
	}
	next := x.table.tier(asked.tier).owner(bucket)
	if next != nil && (next.shard != asked.shard || next.leader != c.instance) {
		if learned || r.retry.failures < 2 {
			return atOnce
		}
		return later
	}
	switch {
	case err.Shard != asked.shard && r.retry.failures < maxBehindTries:
		x.behind = true
	case err.Master != c.instance || err.Term < asked.term:
		x.nextReplica(e, asked, c.instance)
	}
	// Else the leader answered: the bucket moves to another shard, or has arrived and is not served
	// yet. A former leader that does not know its successor names an older term.
	return later
}

// mapChanged processes what an instance announces: a newer map, or the leader of a shard.
func (x *routes) mapChanged(e *Engine, c *Conn, m *protocol.MapChanged) {
	if w := x.table.shard(m.Shard); w != nil {
		x.learnLeader(e, w, c.instance, m.Master, m.Term)
	}
	switch {
	case x.table == nil || m.Version > x.table.version:
		x.fetch.announced(e, m.Version, c, x.needMap(e))
	case m.Version == x.table.version && m.Shard == 0 && x.behind:
		x.behind = false // it has the map that a request waits for
		x.announce(e)
	}
}

// useMap routes by a map, if it is newer than the one there is. What is known of a later term is
// kept.
func (x *routes) useMap(e *Engine, m *protocol.MapReply) error {
	if x.table != nil && m.Version <= x.table.version {
		return nil
	}
	t, err := newTable(m)
	if err != nil {
		return err
	}
	var moved []*shardRoute
	for _, s := range m.Shards { // in the order of the map
		w, old := t.shards[s.ID], x.table.shard(s.ID)
		if old != nil {
			if old.term > w.term && slices.Contains(w.replicas, old.leader) {
				w.term, w.leader = old.term, old.leader
			}
			if w.term > old.term {
				moved = append(moved, w)
			}
		}
		if w.leader != 0 {
			x.setLeader(w, w.leader)
			if old != nil && old.leader != w.leader {
				x.hurry = append(x.hurry, w.link)
			}
		}
	}
	x.mapped, x.first = true, x.first || x.table == nil
	x.table = t
	for _, w := range moved {
		x.leaderMoved(e, w)
	}
	x.announce(e)
	return nil
}

// formerLeaderTimeout is how long the answers of a shard's former leader are waited for.
const formerLeaderTimeout = 250 * time.Millisecond

// leaderMoved is called when another instance leads a shard. Most of the time the one before
// answers what waits there: it refuses what it cannot decide any more. One that hangs, or is cut
// off, answers nothing. So what waits is sent to the new leader after formerLeaderTimeout, with the
// number that it had: it takes effect once. One that has been silent for longer already is not
// waited for. See R20.
func (x *routes) leaderMoved(e *Engine, w *shardRoute) {
	for _, c := range e.conns {
		if !c.up || c.instance == w.leader {
			continue
		}
		c.keepAlive.probe(e)
		if c.waitsFor(w.shard) {
			t := &former{c: c, shard: w.shard}
			t.timer.of = t
			wait := formerLeaderTimeout
			if c.keepAlive.silent() {
				wait = 0
			}
			e.timers.set(&t.timer, e.now+wait)
		}
	}
}

// former is the end of the wait for the answers of a shard's former leader.
type former struct {
	timer timer
	c     *Conn
	shard uint64
}

func (f *former) due(e *Engine) {
	if w := e.routes.table.shard(f.shard); !f.c.over && w != nil && w.leader != f.c.instance {
		f.c.leave(e, f.shard)
	}
}

// findLeader asks another instance who leads: an instance that requests wait for is silent, and
// there may be no connection to one that would announce it. See R19.
func (x *routes) findLeader(e *Engine, silent *Conn) {
	if x.table == nil {
		return
	}
	others := slices.DeleteFunc(slices.Clone(x.table.reply.Instances),
		func(i protocol.MapInstance) bool { return i.ID == silent.instance })
	if len(others) > 0 {
		x.askLeaders(e, others)
	}
}
