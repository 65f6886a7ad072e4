package peer

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// A process that ends has its connections closed by the kernel at once, and nobody listens on its address any more. That tells its end from a cut, behind which nothing
// answers, and from a connection that something on the way has reset, after which the next one is made.

const (
	exitDials        = 4
	exitDialInterval = 15 * time.Millisecond // between two tries: the kernel closes connections and the listener one after the other
	exitCheckTimeout = 500 * time.Millisecond
)

// OnProcessExit says what to do when the process of the instance at an address has ended, as far as this instance can tell: a connection with raft messages from it was closed, and
// its address refuses connections. Call it before Start. f runs on a goroutine of its own, one at a time for an address.
func (m *Transport) OnProcessExit(f func(ctx context.Context, address string)) { m.onProcessExit = f }

// ProcessExited says that the address of an instance refuses connections: no process listens there.
func (m *Transport) ProcessExited(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, exitCheckTimeout)
	defer cancel()
	for try := range exitDials {
		if try > 0 && !sleep(ctx, exitDialInterval) {
			return false
		}
		nc, err := m.cfg.Network.Dial(ctx, normalize(address))
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

// checkProcessExit is told that a connection of raft messages ended although this end did not close it.
func (m *Transport) checkProcessExit(peer string) {
	if m.onProcessExit == nil || m.ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	busy := m.exitChecks[peer]
	m.exitChecks[peer] = true
	m.mu.Unlock()
	if busy {
		return
	}
	m.start(func() {
		defer func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			delete(m.exitChecks, peer)
		}()
		if m.ProcessExited(m.ctx, peer) {
			m.onProcessExit(m.ctx, peer)
		}
	})
}
