package core

import (
	"errors"
	"fmt"
	"math/bits"
)

// Check returns the first broken invariant of an engine between two steps; DESIGN.md lists them.
// sessions are those whose start or restore was answered, live or over. open are the requests of
// calls that have no outcome yet. Both are a test's own account, with which the engine has to agree.
// It is for tests, which call it after each step.
func Check(e *Engine, sessions []*Session, open []*Request) error {
	switch {
	case e.bug != nil:
		return e.bug
	case e.stepped != nil || len(e.tasks) > 0:
		return errors.New("a step is not resolved")
	case e.closed != nil:
		return checkClosed(e, sessions, open)
	}
	for _, r := range open {
		if r.InBackground {
			return fmt.Errorf("a call of kind %d was handed back", r.kind)
		}
		if err := checkOpen(e, r); err != nil {
			return fmt.Errorf("a call of kind %d has no outcome: %w", r.kind, err)
		}
	}
	live, attached := 0, 0
	for id, s := range e.sessions {
		if s == nil || s.ID != id || s.stopped {
			return fmt.Errorf("the table of sessions has another one, or one that is stopped, as %d", id)
		}
		if s.err == nil {
			live++
		}
		if s.attachment != nil {
			attached++
		}
		if err := checkSession(e, s); err != nil {
			return fmt.Errorf("session %d: %w", id, err)
		}
	}
	for _, s := range sessions {
		if err := checkSession(e, s); err != nil {
			return fmt.Errorf("session %d: %w", s.ID, err)
		}
	}
	if n := e.timeouts.count(); n != live {
		return fmt.Errorf("%d sessions live, and %d have a timeout", live, n)
	}
	for i, s := range e.named {
		if s.namedAt != i+1 || s.names.empty() || e.sessions[s.ID] != s {
			return fmt.Errorf("session %d is listed as one with names at place %d, which is %d", s.ID, s.namedAt, i+1)
		}
	}
	bound := 0
	for _, c := range e.conns {
		n, err := checkConn(e, c)
		if err != nil {
			return fmt.Errorf("connection to instance %d: %w", c.instance, err)
		}
		bound += n
	}
	if bound != attached {
		return fmt.Errorf("%d sessions are attached, and connections have %d", attached, bound)
	}
	return checkWaits(e)
}

// checkClosed: nothing goes on after the end of the engine.
func checkClosed(e *Engine, sessions []*Session, open []*Request) error {
	for _, s := range sessions {
		if s.err == nil {
			return fmt.Errorf("session %d lives in an engine that is closed", s.ID)
		}
	}
	if len(open)+len(e.conns)+len(e.sessions) > 0 || len(e.timers.heap) > 0 {
		return fmt.Errorf(
			"an engine that is closed has %d calls without an outcome, %d connections, %d sessions and %d timers", len(open), len(e.conns), len(e.sessions), len(e.timers.heap))
	}
	return nil
}

// checkOpen: a request that is not over is where its end will be noticed.
func checkOpen(e *Engine, r *Request) error {
	s := r.session
	switch {
	case s != nil && s.err != nil:
		return errors.New("its session is over")
	case r.delay.place != 0 && r.delay.of == nil:
		return errors.New("its timer is nobody's")
	}
	switch r.state {
	case Over:
		return errors.New("it is over")
	case Idle:
		if s == nil || r.in == nil || !s.names.has(r.in) {
			return errors.New("it waits for no name of its session")
		}
	case Sent:
		if c := r.on; c == nil || c.over || c.requests.Find(r.id) != r {
			return errors.New("no connection awaits its answer")
		}
	case Queued:
		if c := r.on; c == nil || c.over || r.in != &c.inQueue {
			return errors.New("no connection awaits its result")
		}
	case Waiting:
		return checkWaiting(e, r)
	}
	return nil
}

// checkWaiting: a request that waits does so in one of the lists that are looked through.
func checkWaiting(e *Engine, r *Request) error {
	switch x := r.op.(type) {
	case *stop:
		if x.attach != nil {
			return checkOpen(e, &x.attach.Request)
		}
	case *Close:
		if r.in == &x.s.closing && r.delay.place != 0 {
			return nil
		}
		return errors.New("it does not wait for the end of its session")
	}
	in, s := r.in, r.session
	found := in != nil && (in == &e.paused || in == &e.routes.unmapped || in == &e.routes.fetch.waiting ||
		s != nil && (in == &s.waiting || in == &s.unordered || in == &s.later))
	for _, l := range e.routes.links {
		found = found || in == &l.waiting
	}
	for _, c := range e.conns {
		found = found || in == &c.queue
	}
	if !found {
		return errors.New("it waits in no list")
	}
	return nil
}

// checkSession: the table has every session that lives, and a session that is over has nothing.
func checkSession(e *Engine, s *Session) error {
	if s.err == nil && e.sessions[s.ID] != s {
		return errors.New("it lives, and the table does not have it")
	}
	if !s.stopped && e.sessions[s.ID] == nil {
		return errors.New("the server has not confirmed its end, and the table does not have it")
	}
	if s.err != nil {
		waits := s.names.waits()
		if s.requests.first != nil || waits || !s.waiting.empty() || !s.unordered.empty() || !s.later.empty() ||
			s.stopped && !s.closing.empty() {
			return fmt.Errorf("it is over (%w), and has a request without an outcome", s.err)
		}
		if s.attachment != nil || s.attach != nil || s.namedAt != 0 {
			return fmt.Errorf("it is over (%w), and is attached, or may be", s.err)
		}
		return nil
	}
	if (s.namedAt != 0) == s.names.empty() {
		return fmt.Errorf("it has names, or none, and its place among those that have is %d", s.namedAt)
	}
	if !s.waiting.empty() && (s.attachment != nil || s.attach == nil && s.attachDelay.timer.place == 0) {
		return errors.New("a request waits for an attachment, which there is, or which nobody asks for")
	}
	if s.attach != nil {
		if err := checkOpen(e, &s.attach.Request); err != nil {
			return fmt.Errorf("its attach: %w", err)
		}
	}
	numbered := 0
	for r := s.requests.first; r != nil; r = r.behind {
		if r.session != s || !r.listed {
			return errors.New("a request of another one is in its list")
		}
		if r.seq != 0 && !r.closed {
			numbered++
		}
		if err := checkOpen(e, r); err != nil {
			return fmt.Errorf("a request of kind %d: %w", r.kind, err)
		}
	}
	if n := s.numbers.count(); n != numbered {
		return fmt.Errorf("%d numbers are open, and %d requests have one", n, numbered)
	}
	for r := s.unordered.first; r != nil; r = r.next {
		if s.numbers.Low() > r.after {
			return errors.New("a release waits for an acquire that is over")
		}
	}
	for r := s.later.first; r != nil; r = r.next {
		if r.delay.place == 0 {
			return errors.New("a release waits for no moment")
		}
	}
	return checkNames(s)
}

// checkNames: an operation has each name that is locked, and one alone.
func checkNames(s *Session) (err error) {
	check := func(n *name) {
		operations := 0
		for r := s.requests.first; r != nil; r = r.behind {
			if hasTurn(r) == n {
				operations++
			}
		}
		for r := s.later.first; r != nil; r = r.next {
			if !r.listed && hasTurn(r) == n {
				operations++
			}
		}
		switch l := n.lease; {
		case n.s != s || !n.locked && n.lease == nil:
			err = fmt.Errorf("the name %s is another one's, or nobody's", n.key)
		case n.locked && operations != 1 || !n.locked && operations != 0:
			err = fmt.Errorf("the name %s is locked: %t; %d operations have it", n.key, n.locked, operations)
		case l != nil && l.over == nil && (l.name != n || l.Session != s):
			err = fmt.Errorf("the lease of the name %s is another one's", n.key)
		}
		for r := n.queue.first; r != nil && err == nil; r = r.next {
			if r.state != Idle || !n.locked && !(r.free && n.lease != nil) {
				err = fmt.Errorf("an operation waits for the name %s, which is free", n.key)
			}
		}
	}
	if s.names.one != nil {
		check(s.names.one)
	}
	for _, n := range s.names.more {
		if err == nil {
			check(n)
		}
	}
	return err
}

// hasTurn is the name that a request has to itself; nil: none.
func hasTurn(r *Request) *name {
	if r.state == Idle {
		return nil
	}
	switch x := r.op.(type) {
	case *Acquire:
		if x.mine {
			return x.name
		}
	case *Change:
		if x.mine {
			return x.n
		}
	case *Release:
		return x.name
	case *question:
		return x.n
	}
	return nil
}

// checkConn: what a connection has knows that it does. n is how many sessions are attached there.
func checkConn(e *Engine, c *Conn) (n int, err error) {
	if c.over || c.up && c.link.conn != c || !c.up && c.link.attempt != c {
		return 0, errors.New("it is over, or its instance has another one")
	}
	var last *Session
	for s := c.sessions.first; s != nil; last, s = s, s.next {
		if a := s.attachment; a == nil || a.conn != c || a.over || s.prev != last {
			return 0, fmt.Errorf("session %d is listed and not attached", s.ID)
		}
		if e.sessions[s.ID] != s {
			return 0, fmt.Errorf("session %d is attached, and the table does not have it", s.ID)
		}
		n++
	}
	if p := c.keepAlive.periods.count(); p != n {
		return 0, fmt.Errorf("%d sessions are attached, and %d are kept alive", n, p)
	}
	if c.up && c.keepAlive.timer.place == 0 {
		return 0, errors.New("nobody looks whether it is alive")
	}
	c.requests.Each(func(id uint64, r *Request) {
		if r.on != c || r.id != id || r.state != Sent {
			err = fmt.Errorf("it awaits an answer to a request of kind %d in state %d, which does not", r.kind, r.state)
		}
	})
	for r := c.inQueue.first; r != nil; r = r.next {
		if r.on != c || r.state != Queued {
			err = fmt.Errorf("it awaits a result of a request of kind %d in state %d, which does not", r.kind, r.state)
		}
	}
	if c.up && !c.queue.empty() && c.requests.Open() < c.window {
		err = errors.New("a request waits for room, which there is")
	}
	return n, err
}

// checkWaits: what requests wait for can still come.
func checkWaits(e *Engine) error {
	f := &e.routes.fetch
	if (!e.routes.unmapped.empty() || !f.waiting.empty()) && len(f.asked) == 0 && f.pause.place == 0 {
		return errors.New("a request waits for a map, which nobody fetches")
	}
	if len(f.asked) > 0 && f.late.place == 0 {
		return errors.New("a map is fetched for as long as that takes")
	}
	for _, l := range e.routes.links {
		if !l.waiting.empty() && (l.conn != nil || l.attempt == nil && l.pause.place == 0) {
			return fmt.Errorf("a request waits for a connection to instance %d, which is there, or which nobody makes",
				l.instance)
		}
	}
	for r := e.paused.first; r != nil; r = r.next {
		if r.state != Waiting || r.delay.place == 0 {
			return fmt.Errorf("the pause of a request of kind %d has no end", r.kind)
		}
	}
	return nil
}

// has reports whether a list is the queue of one of the names.
func (x *nameSet) has(l *list) bool {
	if x.one != nil && l == &x.one.queue {
		return true
	}
	for _, n := range x.more {
		if l == &n.queue {
			return true
		}
	}
	return false
}

// waits reports whether an operation waits for one of the names.
func (x *nameSet) waits() (waits bool) {
	if x.one != nil {
		return !x.one.queue.empty()
	}
	for _, n := range x.more {
		waits = waits || !n.queue.empty()
	}
	return waits
}

// count is how many there are.
func (s shortest) count() (n int) {
	for i := range s {
		n += s[i].n
	}
	return n
}

// count is how many numbers are open.
func (n *numbers) count() int { return bits.OnesCount64(n.open) + len(n.more) }
