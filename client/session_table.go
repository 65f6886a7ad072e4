package client

import (
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/client/core"
)

// sessionTable is the sessions of a client, which it keeps alive.
//
// Lock order: a session's mu, then mu.
type sessionTable struct {
	cluster *cluster

	shortest atomic.Int64 // the shortest timeout of the sessions, as time.Duration; changed with mu held
	jumped   atomic.Int64 // how far the wall clock has jumped ahead, all jumps together, as time.Duration
	// when the last jump was noticed, as time.Duration; set before jumped, and read after it
	jumpedAt atomic.Uint64

	mu       sync.Mutex
	closed   bool
	sessions map[uint64]*Session
	timeouts core.Shortest         // of the sessions
	restores map[restoreKey]uint64 // nonces of restores that were given up unanswered
	watchdog *watchdog             // while there are sessions
}

// register makes the session known to the client, which keeps it alive from now on. replaced is the
// session with the same id that the client had: it was restored by its own client.
func (t *sessionTable) register(s *Session) (replaced *Session, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, ErrClientClosed
	}
	if replaced = t.sessions[s.id]; replaced != nil {
		t.timeouts.Remove(replaced.requestedTimeout)
	}
	t.sessions[s.id] = s
	t.timeouts.Add(s.requestedTimeout)
	t.shortest.Store(int64(t.timeouts.Or(s.requestedTimeout)))
	if t.watchdog == nil {
		t.watchdog = startWatchdog(t, t.cluster.clock)
	}
	return replaced, nil
}

// forget is the end of register. The session's mu is held.
func (t *sessionTable) forget(s *Session) {
	t.mu.Lock()
	known := t.sessions[s.id] == s // else it was replaced
	if known {
		delete(t.sessions, s.id)
		t.timeouts.Remove(s.requestedTimeout)
		t.shortest.Store(int64(t.timeouts.Or(math.MaxInt64)))
	}
	if len(t.sessions) == 0 {
		t.shortest.Store(0)
		t.stopWatchdog()
	}
	t.mu.Unlock()
	for _, cn := range t.cluster.allConns() {
		if epoch := cn.forgetSession(s, known); epoch != 0 && known {
			t.cluster.run(func() { cn.takeTicketBack(t.cluster.ctx, s.id, epoch) })
		}
	}
}

// close lets no session be registered any more. It returns those that are.
func (t *sessionTable) close() []*Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.stopWatchdog()
	return slices.Collect(maps.Values(t.sessions))
}

// stopWatchdog stops the watchdog if there is one. mu is held.
func (t *sessionTable) stopWatchdog() {
	if t.watchdog != nil {
		t.watchdog.stop()
		t.watchdog = nil
	}
}

// checkClocks compares the clocks before the state of leases is reported.
func (t *sessionTable) checkClocks() {
	t.mu.Lock()
	w := t.watchdog
	t.mu.Unlock()
	if w != nil {
		w.check()
	}
}

// addJump counts a jump of the wall clock that was noticed at a time.
func (t *sessionTable) addJump(by, at time.Duration) {
	raiseTo(&t.jumpedAt, uint64(at))
	t.jumped.Add(int64(by))
}

// clockJumps is how far the wall clock has jumped ahead until now. noticed is a moment after the
// last of these jumps.
func (t *sessionTable) clockJumps() (by, noticed time.Duration) {
	by = time.Duration(t.jumped.Load())
	return by, time.Duration(t.jumpedAt.Load())
}

// shortestTimeout is the shortest timeout of the sessions; 0 if there is none.
func (t *sessionTable) shortestTimeout() time.Duration { return time.Duration(t.shortest.Load()) }

// failSessionCalls ends the calls of a session that has ended.
func (t *sessionTable) failSessionCalls(s *Session) {
	for _, cn := range t.cluster.allConns() {
		cn.failSessionCalls(s)
	}
}

// allSessions are the sessions that live, or that the server has yet to learn the end of.
func (t *sessionTable) allSessions() []*Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.sessions))
}

func (t *sessionTable) session(id uint64) *Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sessions[id]
}

// confirmMoved confirms leases that another shard owns by the newest map. While they moved, nobody
// reported one that was taken away, and the new shard does not know the session yet.
func (t *sessionTable) confirmMoved() {
	for _, s := range t.allSessions() {
		s.mu.Lock()
		moved := s.nameLocks.hasMoved(t.cluster.routes.Load(), s.node.tier)
		s.mu.Unlock()
		if moved {
			confirmLeases(s)
		}
	}
}

// beginRestore gives the nonce of a restore: that of an earlier attempt of this client which was
// not answered, so that this one goes on with it, or else a new one.
func (t *sessionTable) beginRestore(s *Session) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := restoreKey{s.id, s.generation}
	nonce, ok := t.restores[x]
	if !ok {
		return s.nonce
	}
	delete(t.restores, x) // for one: two restores at a time are two holders
	return nonce
}

// restoreUnanswered notes that the server may have the session for a holder that was given up.
func (t *sessionTable) restoreUnanswered(s *Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.restores == nil {
		t.restores = make(map[restoreKey]uint64)
	}
	t.restores[restoreKey{s.id, s.generation}] = s.nonce
}
