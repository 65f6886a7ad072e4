package request

import (
	"runtime/metrics"
	"sync/atomic"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Above the high mark, in hundredths of the limit, requests that need more memory are rejected,
// until the live heap is below the low mark. The rest is for garbage between two collections, and
// for the runtime itself.
const (
	memoryHighMark = 60
	memoryLowMark  = 55
)

// MemoryLimit watches the memory of the process, and reports whether it is too much for more.
type MemoryLimit struct {
	max      int64 // 0: unlimited
	live     atomic.Int64
	exceeded atomic.Bool
	samples  []metrics.Sample // of Measure
}

// NewMemoryLimit returns a limit of max bytes. 0: unlimited.
func NewMemoryLimit(max int64) *MemoryLimit {
	return &MemoryLimit{max: max, samples: []metrics.Sample{{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"}}}
}

// Max is the limit in bytes; 0: unlimited.
func (m *MemoryLimit) Max() int64 { return m.max }

// Live returns the memory of the process in bytes, as last measured.
func (m *MemoryLimit) Live() int64 { return m.live.Load() }

// Measure updates the measured memory. One goroutine calls it, the sweeper.
func (m *MemoryLimit) Measure() {
	if m.max == 0 {
		return
	}
	metrics.Read(m.samples)
	live := int64(0)
	for i := range m.samples {
		live += int64(m.samples[i].Value.Uint64())
	}
	m.Update(live)
}

// Update decides by the live heap.
func (m *MemoryLimit) Update(live int64) {
	m.live.Store(live)
	switch share := live / (m.max / 100); {
	case share >= memoryHighMark:
		m.exceeded.Store(true)
	case share < memoryLowMark:
		m.exceeded.Store(false)
	}
}

// Rejection is the answer to a request that would make the server hold more; nil: there is room.
func (m *MemoryLimit) Rejection() *protocol.Error {
	if !m.exceeded.Load() {
		return nil
	}
	return protocol.Errorf(protocol.StatusOverloaded,
		"the instance holds %d MiB, and takes nothing new above %d MiB; end what is not needed, or raise --max-memory",
		m.live.Load()>>20,
		m.max/100*memoryHighMark>>20)
}
