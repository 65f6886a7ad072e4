package ratelimit

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// waiter is a session that waits for units of a leaf that is served remotely. It asks again; one
// that does not in time loses its place.
type waiter struct {
	session, until uint64
	amount         uint64
}

// Bounds of the time after which a client is told to ask again, in ms.
const (
	minRetry = 5
	maxRetry = 2_000
)

// Acquire takes an amount from the leader's own bucket for a session, or says after how many ms to
// ask again. A session that waits keeps its place among the others that do. now is when the read
// barrier began that confirmed the leadership. Errors: those of [Leases.Refresh]; NOT_FOUND,
// PRECONDITION_FAILED for a path that is no leaf; BAD_REQUEST for an amount that can never be had;
// ABORTED for a leaf that is leased: refresh first.
func (l *Leases) Acquire(now uint64, tree *Tree, version uint64, session, epoch uint64, leaf string, amount uint64, wait bool) (retry uint64, err error) {
	l.Observe(now, tree, version)
	l.learn(tree)
	if _, err := l.member(tree, session, epoch); err != nil {
		return 0, err
	}
	i, ok := l.index[leaf]
	if !ok {
		return 0, protocol.Errorf(protocol.StatusNotFound, "there is no resource %s; create it first", leaf)
	}
	n := &l.nodes[i]
	switch {
	case len(n.children) > 0:
		return 0, protocol.Errorf(protocol.StatusPreconditionFailed, "resource %s has children; use one of them", leaf)
	case amount > n.most:
		return 0, protocol.Errorf(protocol.StatusBadRequest,
			"an amount of %d thousandths of a unit is more than the burst at %s, %d; raise the burst, or ask for less", amount, leaf, n.most)
	case !l.learning && !n.remote:
		return 0, protocol.Errorf(protocol.StatusAborted, "resource %s is leased; refresh the lease", leaf)
	}
	n.acquires++
	if l.computeDue() {
		l.compute(tree)
	}
	n.queue = slices.DeleteFunc(n.queue, func(w waiter) bool { return w.until <= l.now })
	place := slices.IndexFunc(n.queue, func(w waiter) bool { return w.session == session })
	if place < 0 {
		place = len(n.queue)
	}
	ahead := uint64(0)
	for _, w := range n.queue[:place] {
		ahead = addUpTo(ahead, w.amount, maxRate)
	}
	if retry = l.delay(i, ahead, amount); retry == 0 {
		for k := i; k >= 0; k = l.nodes[k].parent {
			l.nodes[k].bucket.level -= amount * 1000
		}
		if place < len(n.queue) {
			n.queue = slices.Delete(n.queue, place, place+1)
		}
		return 0, nil
	}
	if !wait {
		return retry, nil
	}
	w := waiter{session, l.now + 2*retry + 1000, amount}
	if place < len(n.queue) {
		n.queue[place] = w
	} else {
		n.queue = append(n.queue, w)
	}
	return retry, nil
}

// delay is the time in ms until an amount can be taken, behind others; 0: now.
func (l *Leases) delay(leaf int, ahead, amount uint64) (wait uint64) {
	for i := leaf; i >= 0; i = l.nodes[i].parent {
		n := &l.nodes[i]
		n.accrue(l.now)
		missing := lessBy(addUpTo(ahead, amount, maxRate)*1000, n.bucket.level)
		switch rate := n.remoteRate(); {
		case l.learning, missing > 0 && rate == 0, amount*1000 > n.remoteBurst():
			wait = max(wait, maxRetry/20)
		case missing > 0:
			wait = max(wait, missing/rate+1)
		}
	}
	if ahead > 0 || wait > 0 {
		return min(max(wait, minRetry), maxRetry)
	}
	return 0
}
