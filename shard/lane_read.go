package shard

import (
	"encoding/binary"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
	"github.com/signalbox-dev/signalbox/shard/container"
)

// maxRank is how many of the waiters that are served next have a rank.
const maxRank = 16

// A cursor in the lanes is inLanes, the order id of the last waiter given (8 bytes), and the class
// and the selector of its lane. The owners come before them, and have no such cursor.
func laneCursor(l *lane, after uint64) []byte {
	b := binary.BigEndian.AppendUint64([]byte{inLanes}, after)
	return varint.AppendBytes(varint.AppendBytes(b, l.class), l.selector)
}

// describe gives the waiters lane by lane, from where the cursor stands.
func (q *laneSet) describe(s *semaphore, cursor []byte, p *page, out *protocol.DescribeReply) error {
	at, after := 0, uint64(0)
	switch {
	case len(cursor) > 0 && cursor[0] == inLanes:
		if len(cursor) < 9 {
			return badCursor()
		}
		after = binary.BigEndian.Uint64(cursor[1:])
		r := varint.Reader{Rest: cursor[9:]}
		class, selector := string(r.Bytes(varint.NoLimit)), string(r.Bytes(varint.NoLimit))
		if r.Failed || len(r.Rest) > 0 {
			return badCursor()
		}
		found := false
		if at, found = q.findLane(class, selector); !found {
			after = 0
		}
	case len(cursor) > 0 && cursor[0] == inWaiters: // behind this waiter, in its lane
		after = binary.BigEndian.Uint64(cursor[1:])
		if e := s.waiters.seekOrder(after - 1); after > 0 && e != nil && e.orderID == after {
			at = slices.Index(q.lanes, q.places[e].lane)
		} else {
			after = 0
		}
	}
	ranks := q.ranks()
	for ; at < len(q.lanes); at, after = at+1, 0 {
		l := q.lanes[at]
		full := false
		l.waiters.Ascend(func(e *entry) bool { return e.orderID <= after }, func(e *entry) bool {
			if full = !p.takes(entrySize(e)); full {
				return false
			}
			o := waiterOptions(e)
			o.Rank = ranks[e]
			out.Waiters = append(out.Waiters, protocol.Waiter{
				OrderID: e.orderID, Session: e.session.id, Count: e.count, Data: e.data,
				Description: e.session.description, Since: e.since, Timeout: e.timeout, Options: o,
			})
			after = e.orderID
			return true
		})
		if full {
			out.Cursor = laneCursor(l, after)
			return nil
		}
	}
	return nil
}

// ranks are the waiters that the policy would serve next, one after the other, if nothing else
// happened; the first has rank 1. It does not look at units, and changes nothing.
func (q *laneSet) ranks() map[*entry]uint64 {
	type line struct {
		lane *lane
		walk container.IndexWalk[*entry]
		next *entry
	}
	lines := make([]line, 0, len(q.lanes))
	for _, l := range q.lanes {
		w := l.waiters.From(func(*entry) bool { return false })
		lines = append(lines, line{l, w, nil})
		lines[len(lines)-1].next = lines[len(lines)-1].walk.Next()
	}
	starts, last, hasLast := make(map[*fairKey]uint64), q.fair.last, q.fair.hasLast
	ranks := make(map[*entry]uint64, maxRank)
	for n := uint64(1); n <= maxRank; n++ {
		var best *line
		var least rank
		var tag uint64
		for i := range lines {
			x := &lines[i]
			if x.next == nil {
				continue
			}
			start, cost := uint64(0), uint64(0)
			if k := x.lane.key; k != nil {
				var moved bool
				if start, moved = starts[k]; !moved {
					start = k.start
				}
				cost = fairCost(x.next.count, q.weight(x.lane.class))
			}
			r := q.rankOf(x.lane.level, q.places[x.next].arrival, start, cost,
				hasLast && last == x.lane.class, x.next.orderID)
			if best == nil || r.compare(least) < 0 {
				best, least, tag = x, r, start+cost
			}
		}
		if best == nil {
			break
		}
		ranks[best.next] = n
		best.next = best.walk.Next()
		if k := best.lane.key; k != nil {
			starts[k], last, hasLast = tag, best.lane.class, true
		}
	}
	return ranks
}
