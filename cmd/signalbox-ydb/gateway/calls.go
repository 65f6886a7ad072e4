package gateway

import (
	"context"
	"math"
	"sync"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/signalbox-dev/signalbox/protocol"
)

// maxCalls bounds the calls of one host that are in progress: unary ones, and streams whose session
// has not started. Each takes some 30 KiB and may last 30 s, and a client needs few bytes for it.
// One connection may have as many, so more of them bring a host nothing.
const maxCalls = maxStreams

// maxLeft bounds the sessions of one host that have no stream. Each may last for 25 minutes without
// its client, and all clients with one token share the sessions that a connection to the cluster
// may have.
const maxLeft = 10_000

// hostCounts counts by host.
type hostCounts struct {
	mu    sync.Mutex
	hosts map[string]int
}

// add counts one more until end is called, which may be called twice. end is nil if the host has
// as many as may be.
func (c *hostCounts) add(host string, most int) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hosts[host] >= most {
		return nil
	}
	c.hosts[host]++
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.hosts[host]--; c.hosts[host] == 0 {
			delete(c.hosts, host)
		}
	})
}

// callTable counts the calls of each host that are in progress.
type callTable struct{ hostCounts }

func newCallTable() *callTable { return &callTable{hostCounts{hosts: make(map[string]int)}} }

// begin counts a call until end is called, which may be called twice. The error rejects a call too
// many.
func (t *callTable) begin(ctx context.Context) (end func(), err error) {
	if end = t.add(hostOf(ctx), maxCalls); end == nil {
		return nil, grpcstatus.Errorf(codes.ResourceExhausted,
			"%d calls of this host are in progress, the most that may be; try again later", maxCalls)
	}
	return end, nil
}

// leftTable counts the sessions of each host that have no stream. One more is always kept, for it
// may hold locks: a host with too many only cannot start another.
type leftTable struct {
	hostCounts
	most int
}

func newLeftTable() *leftTable {
	return &leftTable{hostCounts{hosts: make(map[string]int)}, maxLeft}
}

// begin counts a session until end is called.
func (t *leftTable) begin(host string) (end func()) { return t.add(host, math.MaxInt) }

// check refuses to start a session for a host that has left too many.
func (t *leftTable) check(host string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.hosts[host]; n >= t.most {
		return protocol.Errorf(protocol.StatusOverloaded,
			"%d sessions of this host have no stream, and %d are the most that may be; restore and stop them, or wait until they expire",
			n, t.most)
	}
	return nil
}
