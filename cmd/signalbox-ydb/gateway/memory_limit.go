package gateway

import (
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/signalbox-dev/signalbox/protocol"
)

const (
	// defaultMemory bounds the memory of all streams, in bytes, if the process has no limit of its
	// own.
	defaultMemory = 1 << 30
	// memoryShare is the part of the process's limit (GOMEMLIMIT) that may be kept for streams:
	// messages take more in memory than in their encoded form.
	memoryShare = 2
	// pendingCost is about the bytes of a request in progress, a wait or a watch beside its text.
	pendingCost = 4 << 10
)

// memoryBound is how much the gateway may keep for all streams, in bytes.
func memoryBound() int64 {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return limit / memoryShare
	}
	return defaultMemory
}

// memory counts the memory of streams: requests, waits, watches, descriptions, and unread messages.
// Each stream has bounds of its own, which do not add up to one for all. Beyond the bound the
// stream with the most ends, so that a client with many streams that it does not read takes no
// memory from others.
type memory struct {
	most int64
	shed *atomic.Uint64 // streams that were ended

	mu      sync.Mutex
	total   int64 // of the streams that were not asked to end
	streams map[*share]struct{}
}

// share is the memory kept for one stream. memory.mu guards it.
type share struct {
	of    *memory
	end   func(error) // ends the stream, and does not wait
	bytes int64
	ended bool // it does not count any more
}

func newMemory(most int64, shed *atomic.Uint64) *memory {
	return &memory{most: most, shed: shed, streams: make(map[*share]struct{})}
}

// join begins to count for a stream. leave ends it.
func (m *memory) join(end func(error)) *share {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &share{of: m, end: end}
	m.streams[s] = struct{}{}
	return s
}

func (s *share) leave() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.drop()
}

// drop has a stream not count any more. The lock is held.
func (s *share) drop() {
	if !s.ended {
		s.ended = true
		s.of.total -= s.bytes
		delete(s.of.streams, s)
	}
}

// add counts bytes that are kept from now on, or with n below 0 no more.
func (s *share) add(n int) {
	m := s.of
	m.mu.Lock()
	defer m.mu.Unlock()
	s.bytes += int64(n)
	if s.ended {
		return
	}
	for m.total += int64(n); m.total > m.most; {
		var largest *share
		for x := range m.streams {
			if largest == nil || x.bytes > largest.bytes {
				largest = x
			}
		}
		largest.drop() // there is one: total is the sum of them
		m.shed.Add(1)
		largest.end(protocol.Errorf(protocol.StatusOverloaded,
			"the gateway is short of memory, and this stream has the most of it, %d bytes; read answers faster, or ask for less",
			largest.bytes))
	}
}
