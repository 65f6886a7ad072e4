package httpapi

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/signalbox-dev/signalbox/server/metrics"
)

// counts are an API's counters, for its metrics.
type counts struct {
	moves, streams atomic.Int64

	mu       sync.Mutex
	requests map[[3]string]uint64 // by method, route and status
	refusals map[string]uint64    // by code
}

// answered counts a request that was answered; p is nil unless it was refused.
func (c *counts) answered(x *call, p *problem) {
	key := [3]string{"", "", strconv.Itoa(x.status)}
	if x.route != nil {
		key[0], key[1] = x.route.method, x.route.path
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests[key]++
	if p != nil {
		c.refusals[p.code]++
	}
}

// WriteMetrics writes the API's part of a page.
func (a *API) WriteMetrics(p *metrics.Page) {
	a.mu.Lock()
	sessions := len(a.sessions)
	a.mu.Unlock()
	p.Write(metrics.HTTPSessions, sessions)
	p.Write(metrics.HTTPHeld, a.held.Load())
	p.Write(metrics.HTTPStreams, a.counts.streams.Load())
	p.Write(metrics.HTTPMoves, a.counts.moves.Load())
	a.counts.mu.Lock()
	defer a.counts.mu.Unlock()
	order := func(x, y [3]string) int { return slices.Compare(x[:], y[:]) }
	for _, key := range slices.SortedFunc(maps.Keys(a.counts.requests), order) {
		p.Write(metrics.HTTPRequests, a.counts.requests[key], key[:]...)
	}
	for _, code := range slices.Sorted(maps.Keys(a.counts.refusals)) {
		p.Write(metrics.HTTPRefusals, a.counts.refusals[code], code)
	}
}
