package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/signalbox-dev/signalbox/server"
)

// The collector lets the heap grow to twice of what lives before it runs, and keeps that much memory: under load it is what makes collecting cheap, but a server of a
// hundred thousand idle sessions would hold as much in reserve as they need. So the reserve shrinks while hardly anything is allocated, and is back within a second
// of load; until then the collector runs a few times more.
const (
	reserveLook  = 500 * time.Millisecond
	reserveQuiet = 4         // looks in a row
	quietBytes   = 512 << 10 // allocated in a look: below it is quiet
	busyBytes    = 2 << 20   // above it is busy
	quietPercent = 10
)

// reserve decides by how much is allocated.
type reserve struct {
	calm  int // quiet looks in a row
	small bool
}

// look takes in what was allocated since the last look. change says that the reserve is to be made small, or large again.
func (r *reserve) look(allocated uint64) (change bool) {
	if allocated < quietBytes {
		r.calm++
	} else {
		r.calm = 0
	}
	if r.small && allocated > busyBytes || !r.small && r.calm >= reserveQuiet {
		r.small = !r.small
		return true
	}
	return false
}

// boundMemory has the collector aim at its share of a bound, unless the environment gives it another one; undo takes that back.
func boundMemory(limit int64) (undo func()) {
	if limit == 0 || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	before := debug.SetMemoryLimit(limit / 100 * server.MemoryTarget)
	return func() { debug.SetMemoryLimit(before) }
}

// keepReserve runs until ctx ends. It leaves a collector alone that the environment gives a percentage of its own.
func keepReserve(ctx context.Context) {
	usual := debug.SetGCPercent(100)
	debug.SetGCPercent(usual)
	if usual != 100 {
		return
	}
	defer debug.SetGCPercent(usual)
	t := time.NewTicker(reserveLook)
	defer t.Stop()
	var r reserve
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	last := sample[0].Value.Uint64()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		metrics.Read(sample)
		now := sample[0].Value.Uint64()
		if r.look(now - last) {
			percent := usual
			if r.small {
				percent = quietPercent
			}
			debug.SetGCPercent(percent)
		}
		last = now
	}
}
