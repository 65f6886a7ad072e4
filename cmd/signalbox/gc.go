package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/signalbox-dev/signalbox/server"
)

// The collector lets the heap grow to twice of what lives before it runs, and keeps that much
// memory: under load it is what makes collecting cheap, but a server of a hundred thousand idle
// sessions would hold as much in reserve as they need. So the reserve shrinks while hardly anything
// is allocated, and is back within a second of load; until then the collector runs a few times
// more.
const (
	gcSampleInterval = 500 * time.Millisecond
	gcIdleSamples    = 4         // looks in a row
	gcIdleBytes      = 512 << 10 // allocated in a look: below it is quiet
	gcBusyBytes      = 2 << 20   // above it is busy
	gcIdlePercent    = 10
)

// gcTuner decides by how much is allocated.
type gcTuner struct {
	idleSamples int // quiet looks in a row
	reduced     bool
}

// sample takes in what was allocated since the last look. change says that the reserve is to be
// made small, or large again.
func (r *gcTuner) sample(allocated uint64) (change bool) {
	if allocated < gcIdleBytes {
		r.idleSamples++
	} else {
		r.idleSamples = 0
	}
	if r.reduced && allocated > gcBusyBytes || !r.reduced && r.idleSamples >= gcIdleSamples {
		r.reduced = !r.reduced
		return true
	}
	return false
}

// limitMemory has the collector aim at its share of a bound, unless the environment gives it
// another one; undo takes that back.
func limitMemory(limit int64) (undo func()) {
	if limit == 0 || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	before := debug.SetMemoryLimit(limit / 100 * server.MemoryTarget)
	return func() { debug.SetMemoryLimit(before) }
}

// tuneGC runs until ctx ends. It leaves a collector alone that the environment gives a percentage
// of its own.
func tuneGC(ctx context.Context) {
	usual := debug.SetGCPercent(100)
	debug.SetGCPercent(usual)
	if usual != 100 {
		return
	}
	defer debug.SetGCPercent(usual)
	t := time.NewTicker(gcSampleInterval)
	defer t.Stop()
	var r gcTuner
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
		if r.sample(now - last) {
			percent := usual
			if r.reduced {
				percent = gcIdlePercent
			}
			debug.SetGCPercent(percent)
		}
		last = now
	}
}
