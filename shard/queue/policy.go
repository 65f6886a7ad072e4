package queue

import (
	"cmp"

	"github.com/signalbox-dev/signalbox/protocol"
)

// policy decides the order in which the first waiters of lanes are examined.
type policy interface {
	// class returns the class of a level and a key: waiters of one class and selector share a lane,
	// in the order of their places. Classes are ordered as in descriptions.
	class(level uint8, key string) string
	// bid returns the ranked properties of a waiter, or of a request as if it waited.
	bid(level uint8, key string, count, arrival, place uint64) bid
	// rank ranks a bid now; the lowest rank is examined first.
	rank(b *bid) rank
	// joined and left are called when a waiter with a key enters and leaves a lane.
	joined(key string)
	left(key string)
	// granted counts a grant to a key; tag is the tag of the bid.
	granted(key string, tag uint64)
	// tag returns the tag of a bid, or 0 if the policy has no tags.
	tag(b *bid) uint64
	// preview returns a copy that can be asked for the next ranks.
	preview() policy
}

// newPolicy makes the policy of options, with nobody waiting.
func newPolicy(o *protocol.SemaphoreOptions) policy {
	switch o.Policy {
	case protocol.PolicyPriority:
		return priority{o.Aging}
	case protocol.PolicyFair:
		return newFair(o.Weights)
	}
	return fifo{}
}

// bid is the properties of a waiter that a policy ranks.
type bid struct {
	place   uint64
	arrival uint64
	level   uint8
	key     string
	cost    uint64 // of its units, under fair
	share   *share // of its key, under fair; nil while nobody of it waits
}

// rank orders bids.
type rank struct {
	major uint64
	last  bool // the key that was granted last
	place uint64
}

func (a rank) compare(b rank) int {
	if c := cmp.Compare(a.major, b.major); c != 0 {
		return c
	}
	if a.last != b.last {
		if a.last {
			return 1
		}
		return -1
	}
	return cmp.Compare(a.place, b.place)
}

// fifo serves waiters in the order of their places.
type fifo struct{}

func (fifo) class(uint8, string) string                    { return "" }
func (fifo) bid(_ uint8, _ string, _, _, place uint64) bid { return bid{place: place} }
func (fifo) rank(b *bid) rank                              { return rank{place: b.place} }
func (fifo) joined(string)                                 {}
func (fifo) left(string)                                   {}
func (fifo) granted(string, uint64)                        {}
func (fifo) tag(*bid) uint64                               { return 0 }
func (f fifo) preview() policy                             { return f }

// priority serves the highest level first. With aging each level is worth aging ms of waiting: a
// difference of arrivals, so it never changes.
type priority struct{ aging uint64 }

func (priority) class(level uint8, _ string) string {
	return string(rune('0' + protocol.MaxPriority - level))
}

func (priority) bid(level uint8, _ string, _, arrival, place uint64) bid {
	return bid{place: place, arrival: arrival, level: level}
}

func (p priority) rank(b *bid) rank {
	below := uint64(protocol.MaxPriority - b.level)
	if p.aging == 0 {
		return rank{major: below, place: b.place}
	}
	return rank{major: b.arrival + below*p.aging, place: b.place}
}

func (priority) joined(string)          {}
func (priority) left(string)            {}
func (priority) granted(string, uint64) {}
func (priority) tag(*bid) uint64        { return 0 }
func (p priority) preview() policy      { return p }
