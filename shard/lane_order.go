package shard

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// rank orders the first waiters of lanes.
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

// rankOf is the rank of a waiter with these properties; start is that of its key.
func (q *laneSet) rankOf(level uint8, arrival, start, cost uint64, last bool, place uint64) rank {
	switch {
	case q.policy == protocol.PolicyPriority && q.aging == 0:
		return rank{major: uint64(protocol.MaxPriority - level), place: place}
	case q.policy == protocol.PolicyPriority:
		// Each level is worth aging: a difference of arrivals, so it never changes.
		return rank{major: arrival + uint64(protocol.MaxPriority-level)*q.aging, place: place}
	case q.policy == protocol.PolicyFair:
		return rank{major: start + cost, last: last, place: place}
	}
	return rank{place: place}
}

func (q *laneSet) laneRank(l *lane) rank {
	if l.key != nil {
		return q.rankOf(0, 0, l.key.start, l.cost, q.fair.wasLast(l.class), l.first.orderID)
	}
	return q.rankOf(l.level, l.arrival, 0, 0, false, l.first.orderID)
}

// nextLane is the lane whose first waiter is looked at first; nil without waiters.
func (q *laneSet) nextLane() (best *lane) {
	for _, l := range q.lanes {
		l.rank = q.laneRank(l)
		if best == nil || l.rank.compare(best.rank) < 0 {
			best = l
		}
	}
	return best
}

// inOrder are the lanes in the order of the policy. It is good until the lanes change.
func (q *laneSet) inOrder() []*lane {
	for _, l := range q.order {
		l.rank = q.laneRank(l)
	}
	slices.SortFunc(q.order, func(a, b *lane) int { return a.rank.compare(b.rank) })
	return q.order
}

// weight is that of a key.
func (q *laneSet) weight(key string) uint64 {
	at, ok := slices.BinarySearchFunc(q.weights, key, func(w protocol.Weight, key string) int {
		return bytes.Compare(w.Key, []byte(key))
	})
	if ok {
		return q.weights[at].Weight
	}
	return 1
}

// tag is that of a grant under fair.
func (q *laneSet) tag(d demand, count uint64) uint64 {
	return q.fair.startOf(d.key) + fairCost(count, q.weight(d.key))
}
