package core

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/sessionstate"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Engine is the engine of one client. Every method takes the time of its step, on one monotonic
// clock that goes on while the machine sleeps. A time that is before that of the last step counts
// as that.
type Engine struct {
	Noticing bool // there are notices; set before the first step

	now      time.Duration
	rng      uint64 // state of the jitter
	timers   timers
	tasks    []task   // what steps have left to be done after them, in order
	stepped  *Request // whose step runs; nil: none does
	ready    Ready
	routes   routes
	conns    []*Conn // in the order in which they were wanted
	paused   list    // requests that wait for the end of a delay
	sessions map[uint64]*Session
	named    []*Session // those that live and have names, which are few where many only live
	freed    *name      // that are used again

	cluster   string        // id, of the first instance that answered
	wallAhead time.Duration // of the time of day, against the engine's clock
	asleep    time.Duration // for how long the machine had slept when the clocks were compared last
	stalls    *stalls       // nil: there was none
	jumped    time.Duration // how far it has jumped ahead, all jumps together
	look      clockLook
	timeouts  shortest              // of the sessions
	restores  map[restoreKey]uint64 // nonces of restores that ended unanswered
	bounded   boundedNames

	subscriptions []*subscription // that are not over, in no order that matters
	deltas        deltas          // scratch
	lastOneShot   uint64          // id

	closed error // why nothing is begun any more
	bug    error // why it has stopped itself
}

// New returns an engine for the cluster of these endpoints, whose jitter comes from a seed.
func New(endpoints []string, seed uint64) *Engine {
	return &Engine{rng: seed, sessions: make(map[uint64]*Session), routes: newRoutes(endpoints, seed)}
}

// Late reports whether the step at a time is so late, while something was due, that the clocks are
// to be compared first.
func (e *Engine) Late(now time.Duration) bool {
	due, ok := e.timers.next()
	return ok && now-max(due, e.now) >= minStall
}

// lateStep notes how late a step is, if that may matter. slept is for how long the machine slept of
// that.
func (e *Engine) lateStep(now, slept time.Duration) {
	due, _ := e.timers.next()
	from := max(due, e.now)
	if !e.Late(now) || len(e.sessions) == 0 || now-from < e.timeouts.Or(time.Hour)/20 {
		return
	}
	noteStall(e, stall{from: from, to: now, slept: slept})
}

// Take exchanges what is to be done for an empty Ready.
func (e *Engine) Take(r *Ready) { *r, e.ready = e.ready, *r }

// enter begins a step.
func (e *Engine) enter(now time.Duration) {
	if now-e.now >= minStall {
		e.lateStep(now, 0)
	}
	e.now = max(e.now, now)
}

// input is a step of one action, and what it leaves to be done.
func (e *Engine) input(now time.Duration, do func()) {
	e.enter(now)
	do()
	e.resolve()
}

// Next is when Tick is due; ok is false while nothing is.
func (e *Engine) Next() (at time.Duration, ok bool) { return e.timers.next() }

// Open has a connection made, if there is none, to whichever instance answers.
func (e *Engine) Open(now time.Duration) { e.input(now, func() { e.routes.bootstrap.connect(e) }) }

// Connected reports that an instance answered the hello at an address.
func (e *Engine) Connected(now time.Duration, c *Conn, address string, hello *protocol.HelloReply) {
	e.enter(now)
	defer e.resolve()
	if c.over { // it was given up meanwhile
		e.ready.Close = append(e.ready.Close, c)
		return
	}
	if err := e.checkHello(hello); err != nil {
		c.end(e, err)
		return
	}
	c.connected(e, hello)
	e.routes.connected(e, c, address)
	if !c.over && e.routes.table != nil && hello.MapVersion > e.routes.table.version {
		e.routes.fetch.announced(e, hello.MapVersion, c, e.routes.needMap(e))
	}
	c.admit(e)
}

// checkHello refuses another version, and another cluster: ids of sessions and nodes mean something
// else there. See R17 and R18.
func (e *Engine) checkHello(hello *protocol.HelloReply) error {
	if hello.Version != protocol.Version {
		return Permanent(protocol.Errorf(protocol.StatusUnsupported,
			"server speaks protocol version %d, this client version %d", hello.Version, protocol.Version))
	}
	e.cluster = cmp.Or(e.cluster, hello.Cluster)
	if e.cluster != hello.Cluster {
		return Permanent(fmt.Errorf(
			"%w: this is cluster %q; the client was connected to cluster %q, and must be closed before it can work with another",
			ErrOtherCluster, hello.Cluster, e.cluster))
	}
	return nil
}

// Lost reports that a connection is over, or could not be made. An answer to the hello that another
// try would get again is passed as what it is, a *protocol.Error.
func (e *Engine) Lost(now time.Duration, c *Conn, err error) {
	e.enter(now)
	if !c.up {
		if err = RefusedForGood(err); !IsPermanent(err) && !errors.Is(err, ErrUnreachable) {
			err = fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
	}
	c.lose(e, err)
	e.resolve()
}

// StartSession starts a session: behind the hello of the first connection, if that is being made.
func (e *Engine) StartSession(now time.Duration, s *Session, x *Start) {
	e.input(now, func() { x.begin(e, s) })
}

// RestoreSession takes over a session that another holder started.
func (e *Engine) RestoreSession(now time.Duration, s *Session, x *Restore) {
	e.input(now, func() { x.begin(e, s) })
}

// CloseSession ends a session, whose leases end with cause.
func (e *Engine) CloseSession(now time.Duration, s *Session, cause error, x *Close) {
	e.enter(now)
	s.names.each(func(n *name) { // by the clock, before anything else is done with them
		if n.lease != nil {
			n.lease.check(e)
		}
	})
	e.resolve()
	x.begin(e, s, cause)
	e.resolve()
}

// Sessions are those that live, or whose end the server has yet to learn, in order.
func (e *Engine) Sessions() (list []*Session) {
	e.eachSession(func(s *Session) { list = append(list, s) })
	return list
}

// Acquire begins an acquire of a semaphore.
func (e *Engine) Acquire(now time.Duration, s *Session, name string, a *Acquire) {
	e.enter(now)
	a.begin(e, s, name)
	e.resolve()
}

// Release gives a lease back. The lease ends at once. A lease that is over needs no release: Err is
// why it was lost, or nil.
func (e *Engine) Release(now time.Duration, l *Lease, r *Release) {
	e.enter(now)
	r.release(e, l)
	e.resolve()
}

// ReleaseName gives back whatever a session has at a semaphore.
func (e *Engine) ReleaseName(now time.Duration, s *Session, name string, r *Release) {
	e.input(now, func() { r.releaseName(e, s, name) })
}

// AwaitName begins to wait for a name.
func (e *Engine) AwaitName(now time.Duration, s *Session, name string, x *NameWait) {
	e.input(now, func() { x.begin(e, s, name) })
}

// Call begins a call.
func (e *Engine) Call(now time.Duration, x *Call) { e.input(now, func() { x.begin(e) }) }

// Change changes a lease.
func (e *Engine) Change(now time.Duration, l *Lease, x *Change) {
	e.input(now, func() { x.begin(e, l) })
}

// eachSession visits the sessions that live, or whose end the server has yet to learn, in order.
func (e *Engine) eachSession(visit func(*Session)) {
	for _, id := range slices.Sorted(maps.Keys(e.sessions)) {
		if s := e.sessions[id]; s != nil {
			visit(s)
		}
	}
}

// Held reports whether what a session holds may be relied on.
func (e *Engine) Held(now time.Duration, s *Session) bool {
	e.enter(now)
	held := s.held(e)
	e.resolve()
	return held
}

// State is the session's state by the clock.
func (e *Engine) State(now time.Duration, s *Session) sessionstate.State {
	e.enter(now)
	s.due(e)
	e.resolve()
	return s.machine.State()
}

// Remaining is how long the session may be relied on if it is not renewed again; 0 if it may not.
func (e *Engine) Remaining(now time.Duration, s *Session) time.Duration {
	if !e.Held(now, s) {
		return 0
	}
	return s.machine.Deadline() - e.now
}

// Watch begins a watch. It goes on until CloseWatch, or until its Next has an error.
func (e *Engine) Watch(now time.Duration, w *Watch) { e.input(now, func() { w.start(e) }) }

// CloseWatch ends a watch, also at the server.
func (e *Engine) CloseWatch(now time.Duration, w *Watch) { e.input(now, func() { w.end(e, nil) }) }

// Stream begins a stream. It goes on until CloseStream, or until its Next has an error.
func (e *Engine) Stream(now time.Duration, x *Stream) { e.input(now, func() { x.start(e) }) }

// CloseStream ends a stream, also at the server.
func (e *Engine) CloseStream(now time.Duration, x *Stream) { e.input(now, func() { x.end(e, nil) }) }

// Follow begins to follow a way. It goes on until Unfollow, or until its Next has an error.
func (e *Engine) Follow(now time.Duration, w *Way) { e.input(now, func() { w.start(e) }) }

// Unfollow ends it.
func (e *Engine) Unfollow(now time.Duration, w *Way) { e.input(now, func() { w.end(e) }) }

// AwaitMap begins to wait.
func (e *Engine) AwaitMap(now time.Duration, x *MapWait) { e.input(now, func() { x.begin(e) }) }

// Close ends the engine. Its sessions end with err, and are left to their timeouts at the server. All
// other requests end with it too, and all connections are handed over to be closed. Nothing may be
// begun any more.
func (e *Engine) Close(now time.Duration, err error) {
	e.enter(now)
	shutDown(e, err)
}

// AwaitConn begins to wait for a connection.
func (e *Engine) AwaitConn(now time.Duration, x *ConnWait) { e.input(now, func() { x.begin(e) }) }

// GiveUp ends a request that nobody waits for any more, because of err. It is in Ready.Done then,
// if it was not before.
func (e *Engine) GiveUp(now time.Duration, r *Request, err error) {
	e.input(now, func() { e.step(r, inGivenUp, err) })
}

// Clocks compares the time of day with the engine's clock. If it ran ahead, the machine was stopped
// in a way that the engine's clock cannot see. Sessions for which that may matter are held again
// once a ping that is sent after this is answered. See R2. asleep is for how long the machine has
// slept, as far as the engine's clock shows it.
func (e *Engine) Clocks(now, wall, asleep time.Duration) {
	first := e.wallAhead == 0
	if first {
		e.asleep = asleep
	}
	e.lateStep(now, asleep-e.asleep)
	e.asleep = asleep
	e.now = max(e.now, now)
	ahead := wall - e.now
	by := ahead - e.wallAhead
	e.wallAhead = ahead
	if first || by <= sessionstate.MinTimeout/2 {
		return
	}
	e.jumped += by
	noteStall(e, stall{from: e.now, to: e.now, ahead: by})
	e.eachSession(func(s *Session) {
		s.due(e)
		s.jumpAhead(e)
	})
	e.resolve()
}

// Tick does what is due.
func (e *Engine) Tick(now time.Duration) {
	e.enter(now)
	for {
		t := e.timers.due(e.now)
		if t == nil {
			return
		}
		t.of.due(e)
		e.resolve() // the next timer may be another one's by then
	}
}

// Received processes the frames of one read of a connection. The frames are the caller's again when
// it returns.
func (e *Engine) Received(now time.Duration, c *Conn, frames []protocol.Header) {
	e.enter(now)
	c.heard = e.now
	for i := range frames {
		if c.over {
			return // its requests were sent elsewhere
		}
		h := &frames[i]
		var err error
		switch {
		case h.Kind == protocol.KindPong:
			c.pong(h.ID, h.Arg)
		case h.Kind >= protocol.KindReply:
			err = e.reply(c, h)
		case h.Kind.IsEvent() || h.Kind > protocol.KindPong: // or one that a newer server knows
			err = c.event(e, h)
		default:
			err = protocol.Errorf(protocol.StatusBadRequest, "a server does not send requests")
		}
		if err != nil {
			c.end(e, fmt.Errorf("server sent a bad message of kind %d: %w", h.Kind, err))
		}
		e.resolve()
	}
	c.admit(e)
	e.resolve()
}

// Map is the map that requests are routed by, nil if there is none yet. It must not be changed.
func (e *Engine) Map() *protocol.MapReply {
	if e.routes.table == nil {
		return nil
	}
	return e.routes.table.reply
}

// Buckets is how many buckets a tier has; 0: the map has no such tier.
func (e *Engine) Buckets(tier uint8) uint32 {
	if t := e.routes.table.tier(tier); t != nil {
		return t.buckets
	}
	return 0
}

// Shards are those that own buckets of a tier, in order.
func (e *Engine) Shards(tier uint8) (list []uint64) {
	for _, w := range e.routes.table.tier(tier).shards() {
		list = append(list, w.shard)
	}
	return list
}

// Cluster is the id of the cluster of the first instance that answered; empty before.
func (e *Engine) Cluster() string { return e.cluster }

// IsConnected reports whether there is a connection.
func (e *Engine) IsConnected() bool { return liveliest(e, nil) != nil }

// clock is the time by which bounds are kept.
func (e *Engine) clock() time.Duration { return e.now + e.jumped }

// moment is now.
func (e *Engine) moment() moment { return moment{e.now, e.jumped} }

// random is the next number of the jitter, below n.
func (e *Engine) random(n uint64) uint64 {
	e.rng += 0x9e3779b97f4a7c15 // splitmix64
	x := e.rng
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return (x ^ x>>31) % n
}

// task is what a step leaves to be done after it: for a session, a connection, the routes, the fetch
// of a map, or a name. Each looks at its own state then, and does what has come to be due.
type task interface{ resolve(e *Engine) }

// enqueue has a task done after the step, unless it is queued already.
func (e *Engine) enqueue(t task, queued *bool) {
	if !*queued {
		*queued = true
		e.tasks = append(e.tasks, t)
	}
}

// resolve ends an input: what its steps have left is done, in order, and what that leaves.
func (e *Engine) resolve() {
	if len(e.tasks) > 0 || e.bug != nil {
		e.doTasks()
	}
}

func (e *Engine) doTasks() {
	for i := 0; i < len(e.tasks); i++ {
		t := e.tasks[i]
		e.tasks[i] = nil
		t.resolve(e)
	}
	e.tasks = e.tasks[:0]
	if e.bug != nil && e.closed == nil {
		shutDown(e, e.bug)
	}
}

// ErrBug: the engine has found that it broke a rule of its own, and has stopped the client.
var ErrBug = errors.New("the client stopped itself because of a bug in its engine; open another one, and report this")

// broken stops the client after the present input: a rule of the engine was broken, and what it
// believes cannot be trusted any more.
func (e *Engine) broken(r *Request, what string) {
	if e.bug == nil {
		e.bug = fmt.Errorf("%w: a request of kind %d %s", ErrBug, r.kind, what)
	}
}

// Bug is why the engine has stopped itself; nil: it has not.
func (e *Engine) Bug() error { return e.bug }
