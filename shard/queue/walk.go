package queue

import (
	"encoding/binary"

	"github.com/signalbox-dev/signalbox/protocol/varint"
	"github.com/signalbox-dev/signalbox/shard/container"
)

// maxRank is how many of the waiters that are served next have a rank.
const maxRank = 16

// A Cursor is behind a waiter in its lane. As bytes it is the waiter's place (8 bytes), and the
// class and the selector of its lane.
type Cursor struct {
	After           uint64 // a waiter's place; 0: before the first one of the lane
	class, selector string
}

// ReadCursor reads a cursor that Append wrote.
func ReadCursor(b []byte) (c Cursor, ok bool) {
	if len(b) < 8 {
		return c, false
	}
	r := varint.Reader{Rest: b[8:]}
	c = Cursor{binary.BigEndian.Uint64(b), string(r.Bytes(varint.NoLimit)), string(r.Bytes(varint.NoLimit))}
	return c, !r.Failed && len(r.Rest) == 0
}

// Append appends the cursor.
func (c Cursor) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, c.After)
	return varint.AppendBytes(varint.AppendBytes(b, c.class), c.selector)
}

// CursorBehind returns the cursor behind a waiter, the first one if there is no such waiter.
func (q *lanes) CursorBehind(place uint64) (c Cursor) {
	if a := q.asks[place]; a != nil && a.lane != nil {
		c = Cursor{place, a.lane.class, a.lane.selector}
	}
	return c
}

// Walk yields the waiters lane by lane from a cursor on, with their ranks, until yield returns
// false. It returns the cursor behind the last waiter that was taken; more is false at the end.
func (q *lanes) Walk(c Cursor, yield func(a *Ask, rank uint64) bool) (next Cursor, more bool) {
	at, after := 0, c.After
	if c != (Cursor{}) {
		var found bool
		if at, found = q.findLane(c.class, c.selector); !found {
			after = 0
		}
	}
	ranks := q.ranks()
	for ; at < len(q.list); at, after = at+1, 0 {
		l := q.list[at]
		l.waiters.Ascend(func(a *Ask) bool { return a.place <= after }, func(a *Ask) bool {
			if more = !yield(a, ranks[a.place]); more {
				return false
			}
			after = a.place
			return true
		})
		if more {
			return Cursor{after, l.class, l.selector}, true
		}
	}
	return Cursor{}, false
}

// ranks returns the waiters that the policy would serve next, one after the other, if nothing else
// happened; the first has rank 1. It does not look at units, and changes nothing.
func (q *lanes) ranks() map[uint64]uint64 {
	type line struct {
		lane *lane
		walk container.IndexWalk[*Ask]
		next *Ask
		bid  bid
	}
	p := q.policy.preview()
	lines := make([]line, 0, len(q.list))
	advance := func(x *line) {
		if x.next = x.walk.Next(); x.next != nil {
			x.bid = p.bid(x.next.Level, x.next.Key, x.next.Count, x.next.Arrival, x.next.place)
		}
	}
	for _, l := range q.list {
		lines = append(lines, line{lane: l, walk: l.waiters.From(func(*Ask) bool { return false })})
		advance(&lines[len(lines)-1])
	}
	ranks := make(map[uint64]uint64, maxRank)
	for n := uint64(1); n <= maxRank; n++ {
		var best *line
		var least rank
		for i := range lines {
			x := &lines[i]
			if x.next == nil {
				continue
			}
			if r := p.rank(&x.bid); best == nil || r.compare(least) < 0 {
				best, least = x, r
			}
		}
		if best == nil {
			break
		}
		ranks[best.next.place] = n
		p.granted(best.next.Key, p.tag(&best.bid))
		advance(best)
	}
	return ranks
}
