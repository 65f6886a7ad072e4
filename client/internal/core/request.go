package core

import (
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Request is one request to a server, from the call until an answer decides it. Its caller
// owns it before the call, and again when it was in Ready.Done, unless it is InBackground then.
type Request struct {
	Waiter Waiter // is woken when the request is in Ready.Done; nil: nobody waits
	Result        // set then

	purpose
	sending
	tries
	place
}

// purpose is the aim of a request. Its operation sets it.
type purpose struct {
	kind    protocol.Kind
	tier    uint8
	once    bool             // it is not sent again: its connection is lost, or it is not served there
	free    bool             // while Idle: others come first as long as the session has a lease
	message protocol.Message // encoded for each sending
	head    *protocol.Head   // of the message; nil: it has no number
	session *Session         // nil: it belongs to none
	op      operation
	to      destination
	arg     uint64 // bucket, as the frame has it
	// after: a release undoes the acquire with this number, and must not overtake it. 0: none.
	after uint64
	limit time.Duration // that an answer is waited for before it is sent again elsewhere; 0: as long as it takes
}

// sending is the number of a request, and its last sending.
type sending struct {
	state  State
	closed bool          // the number is closed
	seq    uint64        // the number; 0: none yet
	on     *Conn         // that it was sent on; while Sent, and while Queued
	id     uint64        // there
	att    *attachment   // of the session, then
	sent   time.Duration // clock then
	from   *Conn         // where the answer that decided it came
}

// tries is what became of a request's sendings so far, and when and where the next one comes.
type tries struct {
	attempts uint32 // how often it was sent
	// unanswered: some sending was not answered, or queued: it may have had its effect.
	unanswered  bool
	several     bool   // it was sent on several connections
	badSessions uint8  // answers in a row that the session is not known
	via         *Conn  // the only one of them; nil: none, or several
	shard       uint64 // that serves it, as far as this client knows; 0: none, or it is not known
	retry       retry
	delay       timer // ends a pause, the wait for a connection, or that for an answer
	awaits      *link // whose connection it waits for
	last        error // why it was not answered yet
}

// place is where a request waits: in at most one list, and in that of its session from its first
// sending until it is over.
type place struct {
	in             *list
	prev, next     *Request
	before, behind *Request
	listed         bool
}

// Result is the outcome of a request for its caller.
type Result struct {
	Err error // nil: it was answered OK
	// Answered: Err is the server's answer, and not why nobody waits for it any more.
	Answered bool
	// Unknown: it was sent, and may have had its effect.
	Unknown bool
	// Repeated: some sending before was not answered, and may have had its effect.
	Repeated bool
	// InBackground: the engine goes on with it, and keeps the record.
	InBackground bool
}

// Waiter is woken when a request is completed. Done must not block.
type Waiter interface{ Done() }

// operation handles the outcome of a request.
type operation interface {
	// turn: the semaphore's name is the operation's own now.
	turn(e *Engine)
	// decode takes the body of a reply, which is the reader's. queued says that the result is to
	// come as an event.
	decode(body []byte) (queued bool, err error)
	// decided: what was decoded decides the request, or the error of a server does.
	decided(e *Engine, err error)
	// left: its caller does not wait any more, because of err. The request is where it was.
	left(e *Engine, err error)
	// over: the session is over, and so is whatever the operation was for.
	over(e *Engine, err error)
}

// State of a request.
type State uint8

const (
	Idle    State = iota // it waits for the session's other operations on the name
	Waiting              // for an attachment, a connection, room in its window, or the end of a delay
	Sent                 // and not answered
	Queued               // an acquire: it is in the semaphore's queue, and the result is to come
	Over                 // decided, or given up
	numStates
)

// input is what happens to a request.
type input uint8

const (
	inAnswered    input = iota // an answer, or an event, that decides it
	inQueued                   // it was queued at the server
	inRefused                  // it was not served there, or not now: OVERLOADED, UNAVAILABLE, WRONG_SHARD
	inRefusedOnce              // the same, of one that is not sent again
	inBadSession               // the session is not known there
	inLost                     // its connection is over, and a result would not come
	inLostOnce                 // the same, of one that is not sent again
	inGivenUp                  // its caller waits no more
	inEnded                    // its session is over
	numInputs
)

// action is what follows.
type action uint8

const (
	ignore   action = iota
	decide          // the operation goes on with the answer
	await           // the number is closed, the result is to come
	again           // send it again at once, under its number
	pause           // send it again after a delay, under its number
	identify        // show the ticket or attach again, then send it again
	leave           // the operation goes on without its caller, or is given up
	finish          // nothing can be done any more
)

// Steps. A step is what one input does to one request: step, the end of its delay, or its turn at a
// name. The rule:
//
//	A step ends, sends and frees its own request alone. It may begin others. What it means for
//	requests that are there it only notes, and Engine.resolve does that after it.
//
// So nothing that a step calls can end the request that its caller is in the middle of. What does so
// much later is a task:
//
//	Session    its end, a lost attachment, a new one, Low: its requests, its waits for a result
//	Conn       its end: what was sent there, what waited for it, its streams
//	routes     a new map, a new leader: what is paused, what waits for a connection, streams
//	mapFetch   its end: what waited for it
//	name       the end of an operation: the next one; a question about the lease
//	tooLong    the answer to a request that no connection takes
//
// A task looks at the state that it finds, and not at what was true when it was queued: a request
// that has gone another way meanwhile is not touched. Helpers that a request has made for itself, such
// as the create of an acquire, are one with it.
//
// An input is resolved before the next one, and what Take gives is resolved. Sending, pausing and
// completing are the last that a step does with its request. One that is over refuses them, in every
// build: see Engine.broken.

// transitions says what follows from an input in each state.
var transitions = [numStates][numInputs]action{
	//         answered queued refused once    bad session lost once    given up ended
	Idle:    {ignore, ignore, ignore, ignore, ignore, ignore, ignore, leave, finish},
	Waiting: {ignore, ignore, ignore, ignore, ignore, ignore, ignore, leave, finish},
	Sent:    {decide, await, pause, decide, identify, again, finish, leave, finish},
	Queued:  {decide, ignore, ignore, ignore, ignore, again, finish, leave, finish},
	Over:    {},
}

// column is where the table has an input of a request. What is not sent again has columns of its
// own: who made it looks for another way, if there is one.
func (r *Request) column(in input) input {
	switch {
	case r.once && in == inRefused:
		return inRefusedOnce
	case r.once && in == inLost:
		return inLostOnce
	}
	return in
}

// step takes one input into account. err says why nothing was answered, or what was refused.
func (e *Engine) step(r *Request, in input, err error) {
	if e.beginStep(r) {
		e.take(r, in, err)
		e.stepped = nil
	}
}

// beginStep begins a step; false: another one runs.
func (e *Engine) beginStep(r *Request) bool {
	if e.stepped != nil {
		e.broken(r, "was changed inside the step of another one")
		return false
	}
	e.stepped = r
	return true
}

// turn begins an operation on a name.
func (e *Engine) turn(r *Request) {
	if e.beginStep(r) {
		r.op.turn(e)
		e.stepped = nil
	}
}

func (e *Engine) take(r *Request, in input, err error) {
	action := transitions[r.state][r.column(in)]
	if action == ignore {
		return
	}
	if r.state == Sent && (in == inLost || in == inGivenUp || in == inEnded) {
		r.unanswered = true // a refusal to serve it says that this sending had no effect
	}
	if action == leave { // it may go on as it is
		r.op.left(e, r.because(err))
		return
	}
	on := r.on
	e.withdraw(r)
	r.state = Waiting // what follows may lead to further inputs
	switch action {
	case decide:
		r.from = on
		r.op.decided(e, err)
	case await:
		r.unanswered = true // it has an entry at the server
		if a, ok := r.op.(*Acquire); ok {
			a.noteQueued(e)
		}
		r.closeNumber(e)
		if r.att.over || e.routes.resultMoved(r, on) {
			e.send(r) // the result would go another way: the number is the question
			break
		}
		r.state, r.on = Queued, on
		on.inQueue.pushBack(r)
		e.routes.fetch.needed(e)
	case again:
		e.noteRetry(r, on.instance, err)
		e.send(r)
	case identify:
		e.noteRetry(r, on.instance, err)
		r.failed(e, on.instance, on.heard, err)
		r.badSessions++
		r.session.notKnownOn(e, r, on)
		e.pause(r)
	case pause:
		e.noteRetry(r, on.instance, err)
		r.failed(e, on.instance, on.heard, err)
		e.retry(r, on, err.(*protocol.Error))
	case finish:
		r.op.over(e, err)
	}
}

// because is why a request is given up: err, and what kept it from being answered.
func (r *Request) because(err error) error {
	if r.last == nil {
		return err
	}
	return fmt.Errorf("%w (last: %w)", err, r.last)
}

// withdraw takes a request out of wherever it is.
func (e *Engine) withdraw(r *Request) {
	if r.state == Sent && r.on != nil && !r.on.over {
		r.on.requests.Abandon(r.id) // the window counts it until it is answered
	}
	r.on, r.id, r.awaits = nil, 0, nil
	r.unlist()
	if r.delay.place != 0 {
		e.timers.stop(&r.delay)
	}
}

// due ends the pause, or the wait for a connection.
func (r *Request) due(e *Engine) {
	if e.beginStep(r) {
		r.delayOver(e)
		e.stepped = nil
	}
}

func (r *Request) delayOver(e *Engine) {
	if l := r.awaits; l != nil {
		e.unreachable(r, l, errLeaderTimeout)
		return
	}
	if r.state == Sent {
		r.unanswered = true
		e.unreachable(r, r.on.link, fmt.Errorf("%w: no answer within %s", ErrUnreachable, r.limit))
		return
	}
	r.unlist()
	e.send(r)
}

// send sends a request if everything that it needs is there. Else it waits where that is noticed.
func (e *Engine) send(r *Request) {
	switch {
	case r.state == Over:
		e.broken(r, "that is over was sent")
		return
	case e.closed != nil:
		r.op.over(e, e.closed)
		return
	}
	s := r.session
	r.state = Waiting
	r.retry.generation = e.routes.generation
	if r.awaits != nil || r.delay.place != 0 {
		r.awaits = nil
		e.timers.stop(&r.delay)
	}
	if s != nil {
		s.requests.add(r)
		if s.attachment == nil {
			s.await(e, r)
			return
		}
		if r.head != nil && r.seq == 0 {
			r.seq = s.numbers.Take()
		}
	}
	c := r.to(e, r)
	switch {
	case c == nil:
		return
	case c.over:
		e.lostBefore(r)
		return
	case r.after != 0 && r.via != c && s.numbers.Low() <= r.after:
		s.unordered.pushBack(r)
		return
	case s != nil && c != s.attachment.conn:
		s.present(e, c)
	}
	switch full := c.requests.Open() >= c.window; {
	case c.admitting && full:
		c.queue.pushFront(r) // a ticket took its place
		return
	case full || !c.queue.empty() && !c.admitting:
		c.queue.pushBack(r)
		return
	}
	c.emit(e, r)
}

// lostBefore ends a request that can only go out on a connection that is over.
func (e *Engine) lostBefore(r *Request) { r.op.over(e, errConnLost) }

// fill fills in what depends on the moment of the sending.
func (r *Request) fill(e *Engine, c *Conn, id uint64) {
	if r.head != nil {
		*r.head = protocol.Head{Session: r.session.ID, Seq: r.seq, Low: r.session.numbers.Low()}
	} else if p, ok := r.op.(preparer); ok {
		p.prepare(e, c, id)
	}
}

// preparer is an operation without a number that depends on the moment and the place of the sending.
type preparer interface {
	prepare(e *Engine, c *Conn, id uint64)
}

func (r *Request) sentOn(e *Engine, c *Conn, id uint64) {
	if r.limit > 0 {
		r.delay.of = r
		e.timers.set(&r.delay, e.now+r.limit)
	}
	r.state, r.on, r.id, r.sent = Sent, c, id, e.clock()
	r.attempts++
	if r.session != nil {
		r.att = r.session.attachment
	}
	if r.several = r.several || r.via != nil && r.via != c; r.several {
		r.via = nil
	} else {
		r.via = c
	}
}

// closeNumber closes the request's number, if it has one: its answer has come, or nobody wants it.
func (r *Request) closeNumber(e *Engine) {
	if r.seq == 0 || r.closed {
		return
	}
	r.closed = true
	s := r.session
	low := s.numbers.Low()
	if s.numbers.Close(r.seq); s.numbers.Low() != low && !s.unordered.empty() {
		s.ordered = true
		s.enqueue(e)
	}
}

// reply processes the answer to a request. One that cannot be decoded ends the connection: the
// request may be sent again on another one.
func (e *Engine) reply(c *Conn, h *protocol.Header) error {
	if h.Arg > 0xff {
		return protocol.Errorf(protocol.StatusBadRequest, "status %d is no status", h.Arg)
	}
	r := c.requests.Take(h.ID)
	if r == nil {
		return nil // nobody waits any more
	}
	if status := protocol.Status(h.Arg); status != protocol.StatusOK {
		e.refused(r, failure(status, h.Body))
		return nil
	}
	queued, err := r.op.decode(h.Body)
	switch {
	case err != nil:
		e.step(r, inLost, err)
	case queued:
		e.step(r, inQueued, nil)
	default:
		e.step(r, inAnswered, nil)
	}
	if err == nil && r.head != nil {
		e.routes.memory(r.shard).wrote(e.now, c.instance)
	}
	return err
}

// complete takes a request out of wherever it is, and hands it back to its caller, if one waits. It
// does so once: the caller of a request that is over may use it for another call.
func (e *Engine) complete(r *Request, result Result) {
	if r.state == Over {
		e.broken(r, "was completed twice")
		return
	}
	e.withdraw(r)
	r.ended()
	r.closeNumber(e)
	e.notify(r, result)
}

// waited reports whether a caller waits for the request.
func (r *Request) waited() bool { return r.Waiter != nil && !r.InBackground }

// notify wakes the caller.
func (e *Engine) notify(r *Request, result Result) {
	if r.waited() {
		r.Result = result
		r.Result.Repeated = r.unanswered
		e.ready.Done = append(e.ready.Done, r)
	}
}

// refuse completes a request with an answer that is an error.
func (e *Engine) refuse(r *Request, err error) { e.complete(r, Result{Err: err, Answered: true}) }

// fail completes a request without an answer.
func (e *Engine) fail(r *Request, err error) {
	e.complete(r, Result{Err: err, Unknown: r.unanswered})
}

// ended is the end of a request.
func (r *Request) ended() {
	r.state = Over
	if r.session != nil {
		r.session.requests.remove(r)
	}
}

// openRequests are those of all sessions, and of none, where requests wait for connections and
// answers.
func (e *Engine) openRequests() (all []*Request) {
	collect := func(r *Request) { all = append(all, r) }
	for _, c := range e.conns {
		c.inQueue.each(collect)
		c.requests.Each(func(_ uint64, r *Request) { collect(r) })
		c.queue.each(collect)
	}
	for _, l := range e.routes.links {
		l.waiting.each(collect)
	}
	for _, l := range []*list{&e.paused, &e.routes.unmapped, &e.routes.fetch.waiting} {
		l.each(collect)
	}
	return all
}

// failure is a server's error as Go has it.
func failure(status protocol.Status, body []byte) *protocol.Error {
	var f protocol.Failure
	if protocol.DecodeBody(&f, body) != nil {
		f.Message = ""
	}
	return &protocol.Error{
		Status: status, Refusal: f.Refusal, Message: f.Message, Master: f.Master, Term: f.Term, Shard: f.Shard,
		MapVersion: f.MapVersion,
	}
}
