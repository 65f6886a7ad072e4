package replica

import (
	"bytes"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// maxHold is how long acquires that only queue up wait for the owner's release: this, and up to
// twice as long while other batches go. Where an append takes 0.3 ms, 99 of 100 hand-offs between
// owners that release at once are over within 4 ms.
const maxHold = 5 * time.Millisecond

// minHeldTimeout is the shortest timeout, in ms, of an acquire that may be held, so that a hold
// makes the wait longer by a hundredth at most.
const minHeldTimeout = 1000

// handOff is what the batch that was applied last has handed on. Who is granted a contended
// semaphore often releases it at once, and its former owner asks for it again at once. That acquire
// only joins the queue: proposed alone it would make the release, a moment later, wait for a sync.
// So it is held until something else is to be proposed, or another batch was applied, or maxHold is
// over. That costs nobody anything: the acquire waits anyway, and whatever ends the ownership is in
// the log behind it or together with it. It holds nothing back in larger groups, where batches
// overlap.
//
// It is part of a proposalQueue, and guarded by its mu.
type handOff struct {
	shard.HandedOn                  // Name is nil: nothing was handed on
	acquire        protocol.Acquire // buffer
	timer          *time.Timer      // nil: never used
	runs           bool             // the timer
	since          uint64           // number of the last batch when it was started
}

// noteHandOff notes what was handed on last. What is held goes on waiting only for the same
// semaphore. The caller holds mu.
func (q *proposalQueue) noteHandOff(on shard.HandedOn) {
	h := &q.handOff
	if !q.single {
		return
	}
	if on.Name == nil || on.Node != h.Node || !bytes.Equal(on.Name, h.Name) ||
		slices.Contains(q.open.queuing, on.Owner) {
		q.open.queuing = q.open.queuing[:0]
	}
	h.HandedOn = on
	q.hold()
}

// noteQueuing looks at the command that was just added to the open batch. The caller holds mu.
func (q *proposalQueue) noteQueuing(c shard.Command) {
	h, b := &q.handOff, q.open
	if h.Name == nil || c.Kind != shard.CmdAcquire || c.Node != h.Node || len(b.queuing) != len(b.origins)-1 {
		return
	}
	x := &h.acquire
	if x.DecodeBody(c.Body) == nil && x.Timeout >= minHeldTimeout && x.Session != h.Owner && bytes.Equal(x.Name, h.Name) {
		b.queuing = append(b.queuing, x.Session)
		q.hold()
	}
	*x = protocol.Acquire{} // it refers to the body
}

// holds reports whether the open batch waits because all of its commands only queue up. The caller
// holds mu.
func (q *proposalQueue) holds() bool {
	n := len(q.open.origins)
	return n > 0 && n == len(q.open.queuing) && n < minSecondBatchCommands &&
		q.single && q.handOff.Name != nil && len(q.sealed) == 0 && !q.tick && !q.draining
}

// hold starts the timer if the open batch waits. It is not stopped when the wait ends: mostly
// another one has begun when it runs out. The caller holds mu.
func (q *proposalQueue) hold() {
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
func (q *proposalQueue) holdEnded() {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := &q.handOff
	h.runs = false
	if q.holds() && q.seq == h.since {
		h.HandedOn = shard.HandedOn{} // the owner takes its time
		q.wake()
	}
	q.hold()
}

// stop stops the timer. The caller holds the queue's mu.
func (h *handOff) stop() {
	if h.timer != nil {
		h.timer.Stop()
	}
}
