package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

// By default the collector runs when the heap has doubled, and keeps the freed memory. That makes
// collecting cheap under load. A server of a hundred thousand idle sessions would hold as much
// memory in reserve as they need. So the reserve is reduced while hardly anything is allocated. It
// returns within a second of load; until then the collector runs a few times more.
const (
	gcSampleInterval = 500 * time.Millisecond
	gcIdleSamples    = 4         // in a row
	gcIdleBytes      = 512 << 10 // allocated in an interval: below it is idle
	gcBusyBytes      = 2 << 20   // above it is busy
	gcIdlePercent    = 10
)

// gcTuner decides by the bytes allocated in each interval.
type gcTuner struct {
	idleSamples int // in a row
	reduced     bool
}

// sample takes the bytes allocated since the last sample. change: the reserve is to be reduced, or
// restored.
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

// limitMemory sets the collector's limit to its share of a memory limit, unless the environment
// sets one. undo restores the limit before.
func limitMemory(limit int64) (undo func()) {
	if limit == 0 || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	before := debug.SetMemoryLimit(limit / 100 * server.MemoryTarget)
	return func() { debug.SetMemoryLimit(before) }
}

// tuneGC runs until ctx ends. It does nothing if the environment sets a percentage.
func tuneGC(ctx context.Context) {
	usual := debug.SetGCPercent(100)
	debug.SetGCPercent(usual)
	if usual != 100 {
		return
	}
	defer debug.SetGCPercent(usual)
	t := time.NewTimer(beat.Next(gcSampleInterval))
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
			t.Reset(beat.Next(gcSampleInterval))
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
