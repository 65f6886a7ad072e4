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
// of load; until then the collector runs a few times more. Under much load a small heap's reserve is larger than the heap, or it would be collected several times a
// second. A bound of the memory counts for more than any reserve: boundMemory.
const (
	reserveLook  = 500 * time.Millisecond
	reserveQuiet = 4         // looks in a row
	quietBytes   = 512 << 10 // allocated in a look: below it is quiet
	busyBytes    = 2 << 20   // above it is busy
	crowdedBytes = 16 << 20  // above it the reserve is crowdedLarge
	crowdedLarge = 128 << 20

	quietPercent   = 10
	usualPercent   = 100
	largestPercent = 400
)

// reserve decides by how much is allocated and how much lives. The zero value is the collector as it begins.
type reserve struct {
	calm    int // quiet looks in a row
	percent int // that the collector was given last; 0 is usualPercent
}

// look takes in what was allocated since the last look, and tells the percentage that the collector is to have. It changes only for something that is felt.
func (r *reserve) look(allocated, live uint64) (percent int) {
	if r.percent == 0 {
		r.percent = usualPercent
	}
	if allocated < quietBytes {
		r.calm++
	} else {
		r.calm = 0
	}
	switch {
	case r.calm >= reserveQuiet:
		r.percent = quietPercent
	case allocated > crowdedBytes:
		p := int(min(max(crowdedLarge*100/max(live, 1), usualPercent), largestPercent))
		if p > r.percent*5/4 || p < r.percent*4/5 {
			r.percent = p
		}
	case allocated > busyBytes && r.percent < usualPercent:
		r.percent = usualPercent
	}
	return r.percent
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
	usual := debug.SetGCPercent(usualPercent)
	debug.SetGCPercent(usual)
	if usual != usualPercent {
		return
	}
	defer debug.SetGCPercent(usual)
	t := time.NewTicker(reserveLook)
	defer t.Stop()
	var r reserve
	set := usual
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
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
		if percent := r.look(now-last, sample[1].Value.Uint64()); percent != set {
			debug.SetGCPercent(percent)
			set = percent
		}
		last = now
	}
}
