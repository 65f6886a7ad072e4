package proposal

import (
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/shard"
)

// maxHold is how long acquires that only queue up wait for the owner's release: this, and up to
// twice as long while other batches go. Where an append takes 0.3 ms, 99 of 100 hand-offs between
// owners that release at once are over within 4 ms.
const maxHold = 5 * time.Millisecond

// minHeldTimeout is the shortest timeout, in ms, of an acquire that may be held, so that a hold
// makes the wait longer by a hundredth at most.
const minHeldTimeout = 1000

// handOff is the hand-off of the batch that was applied last. The new owner of a contended
// semaphore often releases it at once, and its former owner acquires it again at once. That acquire
// only joins the queue: proposed alone it would make the release, a moment later, wait for a sync.
// So it is held until another command is proposed, or another batch was applied, or maxHold is
// over. That costs nobody anything: the acquire waits anyway, and whatever ends the ownership is in
// the log behind it or together with it. It holds nothing back in larger groups, where batches
// overlap.
//
// The state machine reports the hand-off, and the commands that only queue up behind it: the queue
// knows no requests. handOff is guarded by the queue's mu.
type handOff struct {
	on    shard.HandedOff
	timer *time.Timer // nil: never used
	runs  bool        // the timer
	since uint64      // number of the last batch when it was started
}

// noteHandOff records the last hand-off. Held commands go on waiting only for the same semaphore.
// The caller holds mu.
func (q *Queue) noteHandOff(on shard.HandedOff) {
	if !q.limits.Single {
		return
	}
	if !on.Is(q.handOff.on) || slices.Contains(q.open.queuing, on.Owner) {
		q.open.queuing = q.open.queuing[:0]
	}
	q.handOff.on = on
	q.hold()
}

// noteQueuing looks at the command that was just added to the open batch. The caller holds mu.
func (q *Queue) noteQueuing(c shard.Command) {
	b := q.open
	if q.handOff.on.Name == nil || len(b.queuing) != len(b.Origins)-1 {
		return
	}
	if session, ok := q.handOff.on.Queues(c, minHeldTimeout); ok {
		b.queuing = append(b.queuing, session)
		q.hold()
	}
}

// holds reports whether the open batch waits because all of its commands only queue up. The caller
// holds mu.
func (q *Queue) holds() bool {
	n := len(q.open.Origins)
	return n > 0 && n == len(q.open.queuing) && n < minSecondBatchCommands &&
		q.limits.Single && q.handOff.on.Name != nil && len(q.sealed) == 0 && !q.tick && !q.draining
}

// hold starts the timer if the open batch waits. It is not stopped when the wait ends: mostly
// another one has begun when it runs out. The caller holds mu.
func (q *Queue) hold() {
	h := &q.handOff
	if h.runs || !q.holds() {
		return
	}
	h.runs, h.since = true, q.seq
	if h.timer == nil {
		h.timer = time.AfterFunc(maxHold, q.holdEnded)
	} else {
		h.timer.Reset(maxHold)
	}
}

// holdEnded is called by the timer.
func (q *Queue) holdEnded() {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := &q.handOff
	h.runs = false
	if q.holds() && q.seq == h.since {
		h.on = shard.HandedOff{} // the owner takes its time
		q.Wake()
	}
	q.hold()
}

// stop stops the timer. The caller holds the queue's mu.
func (h *handOff) stop() {
	if h.timer != nil {
		h.timer.Stop()
	}
}
