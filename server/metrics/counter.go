package metrics

import "sync/atomic"

// Counter is a number that only grows. The zero value is ready.
type Counter struct{ n atomic.Uint64 }

// Inc adds one.
func (c *Counter) Inc() { c.n.Add(1) }

// Add adds n, which must not be negative.
func (c *Counter) Add(n int) { c.n.Add(uint64(n)) }

// Get is the number so far.
func (c *Counter) Get() uint64 { return c.n.Load() }
