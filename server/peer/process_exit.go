package peer

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// When a process ends, the kernel closes its connections at once, and its address refuses new ones.
// That distinguishes its end from a network cut, behind which nothing answers, and from a reset
// connection, after which a new one succeeds.

const (
	exitDials        = 4
	exitDialInterval = 15 * time.Millisecond // the kernel closes connections and the listener one after the other
	exitCheckTimeout = 500 * time.Millisecond
)

// OnProcessExit sets the function to call when the process of the instance at an address has ended,
// as far as this instance can tell: a raft connection from it was closed, and its address refuses
// connections. Call it before Start. f runs on its own goroutine, one at a time for an address.
func (m *Transport) OnProcessExit(f func(ctx context.Context, address string)) { m.onProcessExit = f }

// ProcessExited reports whether the address of an instance refuses connections: no process listens
// there.
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

// checkProcessExit is called when a raft connection ended that this end did not close.
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
