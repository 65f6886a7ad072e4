package gateway

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// maxCalls bounds the calls of one host that are in progress: unary ones, and streams whose session
// has not started. Each takes some 30 KiB and may last 30 s, and a client needs few bytes for it.
// One connection may have as many, so more of them bring a host nothing.
const maxCalls = maxStreams

// callTable counts the calls of each host that are in progress.
type callTable struct {
	mu    sync.Mutex
	hosts map[string]int
}

func newCallTable() *callTable { return &callTable{hosts: make(map[string]int)} }

// begin counts a call until end is called, which may be called twice. The error is that of a call
// too many.
func (t *callTable) begin(ctx context.Context) (end func(), err error) {
	host := hostOf(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hosts[host] >= maxCalls {
		return nil, grpcstatus.Errorf(codes.ResourceExhausted,
			"%d calls of this host are in progress, the most that may be; try again later", maxCalls)
	}
	t.hosts[host]++
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.hosts[host]--; t.hosts[host] == 0 {
			delete(t.hosts, host)
		}
	}), nil
}
