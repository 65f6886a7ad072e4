package server

import (
	"fmt"
	"runtime/metrics"
	"sync/atomic"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Above the high mark, in hundredths of Limits.MaxMemory, the server rejects requests that need
// more memory, until the live heap is below the low mark. The rest is for garbage between two
// collections, and for what the runtime itself takes.
const (
	memoryHighMark = 60
	memoryLowMark  = 55
	// MemoryTarget is the share of Limits.MaxMemory that the collector should keep the process in,
	// in hundredths. Near it collections are frequent, so the size of the live heap is up to date
	// when it matters.
	MemoryTarget = 80
)

// memoryLimit watches what the process holds, and says whether it is too much for more.
type memoryLimit struct {
	max      int64 // Limits.MaxMemory; 0: nothing is watched
	live     atomic.Int64
	exceeded atomic.Bool
	samples  []metrics.Sample // of the sweeper
}

func newMemoryLimit(max int64) *memoryLimit {
	return &memoryLimit{max: max, samples: []metrics.Sample{{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"}}}
}

// measure takes in how things stand. Called by the sweeper.
func (m *memoryLimit) measure() {
	if m.max == 0 {
		return
	}
	metrics.Read(m.samples)
	live := int64(0)
	for i := range m.samples {
		live += int64(m.samples[i].Value.Uint64())
	}
	m.update(live)
}

// update decides by what lives.
func (m *memoryLimit) update(live int64) {
	m.live.Store(live)
	switch share := live / (m.max / 100); {
	case share >= memoryHighMark:
		m.exceeded.Store(true)
	case share < memoryLowMark:
		m.exceeded.Store(false)
	}
}

// rejection is the answer to a request that would make the server hold more; nil: there is room.
func (m *memoryLimit) rejection() *protocol.Error {
	if !m.exceeded.Load() {
		return nil
	}
	return protocol.Errorf(protocol.StatusOverloaded,
		"the instance holds %d MiB, and takes nothing new above %d MiB; end what is not needed, or raise --max-memory", m.live.Load()>>20,
		m.max/100*memoryHighMark>>20)
}

// checkMaxMemory checks the setting.
func checkMaxMemory(max int64) error {
	if max != 0 && max < minMemory {
		return fmt.Errorf("max memory is %d bytes; choose at least %d MiB, or 0 for no bound", max, minMemory>>20)
	}
	return nil
}

// minMemory is what an instance needs to be of use.
const minMemory = 256 << 20
