package machine

import (
	"slices"
	"time"
)

// Step says how an acquire goes on.
type Step struct {
	Lease Lease // confirm that the cluster has this grant, and answer with it
	Op    Op    // wait for the reply about this acquire
	Start bool  // start it first, once After has ended
	After Op    // an operation on the name; 0: nothing precedes it
	// Refused: the session has the name in another way, or fewer units than are asked for. Held is
	// what it has, without hashes.
	Refused bool
	Held    Set
}

// Acquire places an acquire of a Live session. A repeat of the one that waits for the name joins it.
// Another one takes its place, and a stream that of the older stream. One that is refused takes none.
func (s *Session) Acquire(call Call, key string, set Set, stream bool) Step {
	n := s.of(key)
	delete(s.absent, key)
	if l := n.lease; l != nil && (n.set.Ephemeral != set.Ephemeral || set.Count > l.Count()) {
		return Step{Refused: true, Held: Set{Ephemeral: n.set.Ephemeral, Count: l.Count()}}
	}
	if n.op != 0 && n.set != set {
		for _, waiter := range n.waiters {
			s.abort(n, waiter)
		}
		s.drop(n)
	}
	if stream {
		if n.stream != 0 && n.stream != call {
			s.abort(n, n.stream)
		}
		n.stream = call
	}
	switch {
	case n.lease != nil:
		return Step{Lease: n.lease}
	case n.op != 0:
		n.waiters = append(n.waiters, call)
		return Step{Op: n.op}
	}
	n.set, n.op, n.waiters = set, s.next(), []Call{call}
	return Step{Op: n.op, Start: true, After: n.dropped}
}

// Changed notes that a lease now is as a repeat of its acquire says.
func (s *Session) Changed(key string, l Lease, set Set) {
	if n := s.names[key]; n != nil && n.lease == l {
		n.set = set
	}
}

// HungUp notes that the caller of a request that waits has gone. If no other one waits, it has
// ReturnTime to come again.
func (s *Session) HungUp(now time.Duration, call Call, key string) {
	if n := s.names[key]; n != nil && n.leave(call) && len(n.waiters) == 0 {
		if s.absent == nil {
			s.absent = make(map[string]time.Duration)
		}
		s.absent[key] = now + ReturnTime
	}
	s.StreamEnded(call, key)
}

// WaitOver notes that a request is answered before its acquire has an outcome. The acquire goes on
// for as long as the session lives.
func (s *Session) WaitOver(call Call, key string) {
	if n := s.names[key]; n != nil {
		n.leave(call)
	}
	s.StreamEnded(call, key)
}

// GiveUp is WaitOver of a request whose place in the queue ends with it, if no other one waits.
func (s *Session) GiveUp(call Call, key string) {
	if n := s.names[key]; n != nil && n.leave(call) && len(n.waiters) == 0 {
		s.drop(n)
	}
	s.StreamEnded(call, key)
}

// leave reports whether a call waited, and does not any more.
func (n *name) leave(call Call) bool {
	i := slices.Index(n.waiters, call)
	if i >= 0 {
		n.waiters = slices.Delete(n.waiters, i, i+1)
	}
	return i >= 0
}

// StreamEnded notes that a stream tells of a name no more.
func (s *Session) StreamEnded(call Call, key string) {
	if n := s.names[key]; n != nil && n.stream == call {
		n.stream = 0
	}
}

// Done notes the outcome of an acquire: a lease, or an error. It may have been given up meanwhile,
// and then it goes on as the lease's Return. Otherwise Done reports true, and Ended follows.
func (s *Session) Done(op Op, key string, l Lease, err error) bool {
	n := s.names[key]
	switch {
	case n == nil: // the session is Over
	case n.op == op:
		for _, waiter := range n.waiters {
			s.ready.Replies = append(s.ready.Replies, Reply{Call: waiter, Lease: l, Err: err})
		}
		n.op, n.lease, n.waiters = 0, l, nil
		s.prune(key, n)
	case l != nil:
		s.ready.Return = append(s.ready.Return, Return{op, key, l})
		return false
	}
	return true
}

// Ended notes that a release, or the acquire that was given up, has ended.
func (s *Session) Ended(op Op, key string) {
	if n := s.names[key]; n != nil && n.dropped == op {
		n.dropped = 0
		s.prune(key, n)
	}
}

// Lost notes that a lease has ended.
func (s *Session) Lost(key string, l Lease) {
	if n := s.names[key]; n != nil && n.lease == l {
		n.lease = nil
		s.prune(key, n)
	}
}

// Release says how a release goes on.
type Release struct {
	Op     Op    // of the release, which is followed by Ended; 0: there is nothing to release
	Lease  Lease // release this grant; nil: what the session has of the name
	After  Op    // once this one has ended; 0: nothing precedes it
	Queued bool  // it had a place in the queue
}

// Release takes a name from a Live session. With a token it takes that grant alone; 0: whatever the
// session has of the name.
func (s *Session) Release(key string, token uint64) Release {
	n := s.names[key]
	if token != 0 && (n == nil || n.lease == nil || n.lease.Token() != token) {
		return Release{}
	}
	n = s.of(key)
	r := Release{Op: s.next(), Lease: n.lease, Queued: n.op != 0}
	for _, waiter := range n.waiters {
		s.abort(n, waiter)
	}
	n.lease = nil
	delete(s.absent, key)
	s.drop(n)
	r.After, n.dropped = n.dropped, r.Op
	return r
}

// drop gives up the acquire under way of a name, if there is one.
func (s *Session) drop(n *name) {
	if n.op != 0 {
		s.ready.Cancel = append(s.ready.Cancel, n.op)
		n.op, n.dropped, n.waiters = 0, n.op, nil
	}
}

// abort ends a request: a newer one has its place.
func (s *Session) abort(n *name, call Call) {
	s.ready.Replies = append(s.ready.Replies, Reply{Call: call, Aborted: true})
	if n.stream == call {
		n.stream = 0
	}
}
