package membership

import (
	"context"
	"sync"
)

// PeerExited is called when the process of the instance at a raft address has ended. What it led is
// led by others as soon as a majority of each shard's voters has found the same. They do not wait
// for the election timeout.
func (m *Member) PeerExited(ctx context.Context, address string) {
	var mu sync.Mutex
	var agree []string
	m.service.ConfirmProcessExit(ctx, address, func(from string) {
		mu.Lock()
		defer mu.Unlock()
		agree = append(agree, from)
		if n := m.host.Succeed(address, agree); n > 0 {
			m.Logger.Info("process of another instance has ended, standing for election in its place", "address", address, "shards", n)
		}
	})
}
