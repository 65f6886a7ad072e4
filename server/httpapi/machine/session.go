package machine

import "time"

const (
	// ExtraTTL is how long a session is kept beyond what callers were told: one that counts from
	// the answer is late by the answer's delay.
	ExtraTTL = time.Second
	// ReturnTime is how long a caller that hung up while it waited has to send its request again.
	ReturnTime = 5 * time.Second
)

// State is what a session's gateway does with it.
type State uint8

// The states of a session, in their order.
const (
	Starting State = iota
	Live
	Stopping
	Over
)

// Call is a request under way. 0: none.
type Call uint64

// Op is an acquire or a release at the cluster. Numbers rise from 1. 0: none.
type Op uint64

// Lease is a grant of the cluster.
type Lease interface {
	Token() uint64
	Count() uint64
}

// Set is what an acquire asks for. Equal ones are repeats of one request.
type Set struct {
	Ephemeral bool
	Count     uint64
	Data      [32]byte // hash of the data
	Rest      [32]byte // hash of everything else
}

// Session is one HTTP session at one gateway. Its zero value is Starting. The caller serializes the
// methods, and takes Ready after each of them.
type Session struct {
	ttl   time.Duration
	state State
	calls int
	ends  time.Duration // Invariant: 0, unless it is Live and nobody calls
	names map[string]*name
	// absent has when a name is given up unless its caller, who hung up, comes again.
	absent map[string]time.Duration
	ops    Op // the number of the newest
	ready  Ready
}

// name is what the session has of a name.
//
// Invariants: lease and op are not both set. There are waiters only with op. A name that is absent
// has one of lease and op, and no waiters. A name with neither lease, op nor dropped is not in the
// table.
type name struct {
	set     Set    // of lease or op
	lease   Lease  // nil: none is held
	op      Op     // the acquire under way
	dropped Op     // the newest acquire that was given up, or release, that has not ended
	waiters []Call // get the outcome of op
	stream  Call   // the stream that tells of the name
}

// Ready is what the caller of a method does next, in any order.
type Ready struct {
	Replies []Reply
	Cancel  []Op     // acquires whose outcome nobody wants
	Return  []Return // grants to release
	Stop    bool     // end the native session
	// Late: with Stop, by how much the end came after the session's life without a request; Unrenewed: its
	// whole time without one. 0: it has not ended for that.
	Late, Unrenewed time.Duration
}

// Return is a grant that nobody wants. Its release is followed by Ended.
type Return struct {
	Op    Op
	Name  string
	Lease Lease
}

// Reply ends what a request waits for.
type Reply struct {
	Call    Call
	Aborted bool  // a newer request took its place
	Lease   Lease // granted; nil: see Err
	Err     error // the outcome of the acquire
}

// Ready returns what is to be done since the last call of Ready.
func (s *Session) Ready() Ready {
	r := s.ready
	s.ready = Ready{}
	return r
}

// State returns the session's state.
func (s *Session) State() State { return s.state }

// Next returns when Tick is due; 0: never.
func (s *Session) Next() time.Duration {
	next := s.ends
	for _, at := range s.absent {
		if next == 0 || at < next {
			next = at
		}
	}
	return next
}

// Enter counts a request. It reports false if the session serves no more requests.
func (s *Session) Enter() bool {
	if s.state > Live {
		return false
	}
	s.calls++
	s.ends = 0
	return true
}

// Leave ends a request that Enter counted: its answer is written. Without another one the session
// ends when life is over; 0: at once.
func (s *Session) Leave(now time.Duration, life time.Duration) {
	s.calls--
	switch {
	case s.calls > 0 || s.state != Live:
	case life <= 0:
		s.stop()
	default:
		s.ends = now + life
	}
}

// LeaveRefused is Leave of the request that started the session, and was refused for good. The
// session ends if it has nothing.
func (s *Session) LeaveRefused(now time.Duration) {
	if life := s.Life(); len(s.names) > 0 {
		s.Leave(now, life)
	} else {
		s.Leave(now, 0)
	}
}

// Life is how long the session lives after the answer to its last request.
func (s *Session) Life() time.Duration { return s.ttl + ExtraTTL }

// Started makes the session Live, with what it holds if it was taken over, unless it is Over
// already.
func (s *Session) Started(now time.Duration, ttl time.Duration) {
	if s.state != Starting {
		return
	}
	s.ttl, s.state = ttl, Live
	if s.calls == 0 {
		s.ends = now + s.Life()
	}
}

// Holds notes a lease that a session which was taken over has, of a name that it does not know.
func (s *Session) Holds(name string, set Set, l Lease) {
	if s.state <= Live && !s.Knows(name) {
		n := s.of(name)
		n.set, n.lease = set, l
	}
}

// Knows reports whether a name is held, waited for, or given up and not yet answered.
func (s *Session) Knows(name string) bool { return s.names[name] != nil }

// End has the session stopped by its caller's request.
func (s *Session) End() {
	if s.state <= Live {
		s.state, s.ends = Stopping, 0
	}
}

// stop has the session ended for want of a caller.
func (s *Session) stop() {
	s.End()
	s.ready.Stop = true
}

// Close makes the session Over. Acquires under way end by themselves.
func (s *Session) Close() {
	s.state, s.ends, s.names, s.absent = Over, 0, nil, nil
}

// Tick gives up what is due.
func (s *Session) Tick(now time.Duration) {
	for key, at := range s.absent {
		if now < at {
			continue
		}
		n := s.names[key]
		delete(s.absent, key)
		if n.lease != nil {
			n.dropped = s.next()
			s.ready.Return = append(s.ready.Return, Return{n.dropped, key, n.lease})
			n.lease = nil
		}
		s.drop(n)
	}
	if s.ends != 0 && now >= s.ends {
		s.ready.Late, s.ready.Unrenewed = now-s.ends, now-s.ends+s.Life()
		s.stop()
	}
}

// Leases calls f with each name that is held, and its lease, in no order.
func (s *Session) Leases(f func(name string, l Lease)) {
	for key, n := range s.names {
		if n.lease != nil {
			f(key, n.lease)
		}
	}
}

// Lease returns what is held of a name, and as what it was asked for; nil: nothing.
func (s *Session) Lease(name string) (Lease, Set) {
	if n := s.names[name]; n != nil && n.lease != nil {
		return n.lease, n.set
	}
	return nil, Set{}
}

// Show is Lease for an answer that says so. The caller has come again: the lease is not given up.
func (s *Session) Show(name string) (Lease, Set) {
	l, set := s.Lease(name)
	if l != nil {
		delete(s.absent, name)
	}
	return l, set
}

// ShowAll is Show of all names, with those that wait.
func (s *Session) ShowAll() { clear(s.absent) }

// of returns the table's entry of a name. Its user calls prune if it may have set nothing.
func (s *Session) of(key string) *name {
	n := s.names[key]
	if n == nil {
		if s.names == nil {
			s.names = make(map[string]*name)
		}
		n = new(name)
		s.names[key] = n
	}
	return n
}

// next numbers an operation.
func (s *Session) next() Op {
	s.ops++
	return s.ops
}

// prune is the one place where a name leaves the table.
func (s *Session) prune(key string, n *name) {
	if n.lease == nil && n.op == 0 {
		delete(s.absent, key)
		if n.dropped == 0 && s.names[key] == n {
			delete(s.names, key)
		}
	}
}
