package server

import (
	"context"
	"sync"
)

// peerEnded says whether the process of the instance at a raft address has ended, as far as can be told here.
func (s *Server) peerEnded(ctx context.Context, address string) bool {
	return s.peers != nil && s.peers.ProcessExited(ctx, address)
}

// peerExited is told that the process of another instance has ended. What it led is led by others as soon as a majority of each shard's voters has found the same: nobody waits
// until it was not heard for an election's time.
func (s *Server) peerExited(ctx context.Context, address string) {
	if !s.ready.Load() || s.leaving.Load() {
		return
	}
	var mu sync.Mutex
	var agree []string
	s.member.ConfirmProcessExit(ctx, address, func(from string) {
		mu.Lock()
		defer mu.Unlock()
		agree = append(agree, from)
		if n := s.host.Succeed(address, agree); n > 0 {
			s.log.Info("process of another instance has ended, standing for election in its place", "address", address, "shards", n)
		}
	})
}
