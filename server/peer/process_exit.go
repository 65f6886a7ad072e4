package peer

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

// When a process ends, the kernel closes its connections at once, and its address refuses new ones.
// That distinguishes its end from a network cut, behind which nothing answers, and from a reset
// connection, after which a new one succeeds.

const (
	exitDials        = 4
	exitDialInterval = 15 * time.Millisecond // the kernel closes connections and the listener one after the other
	exitCheckTimeout = 500 * time.Millisecond
)

// processExited reports whether an address refuses connections: no process listens there.
func processExited(ctx context.Context, network Network, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, exitCheckTimeout)
	defer cancel()
	for try := range exitDials {
		if try > 0 && !beat.Sleep(ctx, exitDialInterval) {
			return false
		}
		nc, err := network.Dial(ctx, normalize(address))
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

// exitChecks are the peers whose process exit is being checked.
type exitChecks struct {
	mu   sync.Mutex
	busy map[string]bool
	f    func(ctx context.Context, address string) // set before Start; nil: exits are not checked
}

// check is called when a raft connection ended that this end did not close.
func (e *exitChecks) check(m *Transport, peer string) {
	if e.f == nil || m.ctx.Err() != nil {
		return
	}
	e.mu.Lock()
	busy := e.busy[peer]
	e.busy[peer] = true
	e.mu.Unlock()
	if busy {
		return
	}
	m.start(func() {
		defer func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			delete(e.busy, peer)
		}()
		if processExited(m.ctx, m.cfg.Network, peer) {
			e.f(m.ctx, peer)
		}
	})
}
