package shard

import "github.com/signalbox-dev/signalbox/shard/container"

// A machine may have millions of semaphores, and metrics show a thousand. Two small sets find those
// that matter without a walk over all: a node's contended semaphores, which are exact, and a sample
// of those that are granted often. Neither is part of the state.

const (
	// hotSlots is how many semaphores the sample of often granted ones has.
	hotSlots = 512
	// hotPeriod is how many grants there are, on average, for one that is looked at. A semaphore
	// with one in a thousand of all grants is found within some hundred thousand.
	hotPeriod = 64
	// hotSteps bounds the search for a slot.
	hotSteps = 8
)

// hotSample holds semaphores that were granted lately, by sampling: one that is sampled again
// before the hand comes by stays.
type hotSample struct {
	left  uint32 // grants until one is looked at
	draws uint64
	hand  int
	slots []*semaphore
}

// granted counts a grant. The distance from one that is looked at to the next varies, so that no
// rhythm of the clients hides a semaphore.
func (h *hotSample) granted(s *semaphore) {
	if h.left > 0 {
		h.left--
		return
	}
	h.draws++
	h.left = uint32(container.Mix(h.draws) % (2 * hotPeriod))
	h.add(s)
}

func (h *hotSample) add(s *semaphore) {
	switch {
	case s.hotAt > 0:
		s.hotAgain = true
		return
	case len(h.slots) < hotSlots:
		h.slots = append(h.slots, s)
		s.hotAt = uint16(len(h.slots))
		return
	}
	for range hotSteps {
		at := h.slots[h.hand]
		if at == nil || !at.hotAgain {
			break
		}
		at.hotAgain = false
		h.hand = (h.hand + 1) % hotSlots
	}
	if at := h.slots[h.hand]; at != nil {
		at.hotAt, at.hotAgain = 0, false
	}
	h.slots[h.hand], s.hotAt = s, uint16(h.hand+1)
	h.hand = (h.hand + 1) % hotSlots
}

func (h *hotSample) remove(s *semaphore) {
	if s.hotAt > 0 {
		h.slots[s.hotAt-1], s.hotAt, s.hotAgain = nil, 0, false
	}
}
