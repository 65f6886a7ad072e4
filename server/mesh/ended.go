package mesh

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// A process that ends has its connections closed by the kernel at once, and nobody listens on its address any more. That tells its end from a cut, behind which nothing
// answers, and from a connection that something on the way has reset, after which the next one is made.

const (
	endedTries = 4
	endedRest  = 15 * time.Millisecond // between two tries: the kernel closes connections and the listener one after the other
	endedDial  = 500 * time.Millisecond
)

// OnEnded says what to do when the process of the instance at an address has ended, as far as this instance can tell: a connection with raft messages from it was closed, and
// its address refuses connections. Call it before Start. f runs on a goroutine of its own, one at a time for an address.
func (m *Mesh) OnEnded(f func(ctx context.Context, address string)) { m.onEnded = f }

// Ended says that the address of an instance refuses connections: no process listens there.
func (m *Mesh) Ended(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, endedDial)
	defer cancel()
	for try := range endedTries {
		if try > 0 && !sleep(ctx, endedRest) {
			return false
		}
		nc, err := m.cfg.Network.Dial(ctx, clean(address))
		if errors.Is(err, syscall.ECONNREFUSED) {
			return true
		}
		if err == nil {
			_ = nc.Close()
		} else if ctx.Err() != nil {
			return false
		}
	}
	return false
}

// closedByPeer is told that a connection of raft messages ended although this end did not close it.
func (m *Mesh) closedByPeer(peer string) {
	if m.onEnded == nil || m.ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	busy := m.ending[peer]
	m.ending[peer] = true
	m.mu.Unlock()
	if busy {
		return
	}
	m.start(func() {
		defer func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			delete(m.ending, peer)
		}()
		if m.Ended(m.ctx, peer) {
			m.onEnded(m.ctx, peer)
		}
	})
}
