package leader

// barrierState runs one read barrier at a time for all that wait. What arrives during a barrier
// waits for the next one: a barrier proves only what began before it.
type barrierState struct {
	number   uint64 // of the newest; numbers continue across leaderships
	inFlight bool
	began    uint64 // when the newest began

	lastProof uint64 // when the last successful one began
	proved    bool   // one succeeded in this leadership
	backoff   bool   // the last one failed: begin the next after a tick
	wanted    bool   // a self-check is due: begin one although nothing waits
}

// barrierQueue is what waits for barriers: for one to begin, and for the one in flight to end.
type barrierQueue[T any] struct{ waiting, inFlight []T }

func (q *barrierQueue[T]) begin() { q.inFlight, q.waiting = q.waiting, q.inFlight[:0] }

func (q *barrierQueue[T]) done() {
	clear(q.inFlight)
	q.inFlight = q.inFlight[:0]
}

// requeue puts what waited for a failed barrier first in the queue for the next one.
func (q *barrierQueue[T]) requeue() {
	q.waiting, q.inFlight = append(q.inFlight, q.waiting...), nil
}

// Fresh returns when the last successful barrier of this leadership began.
func (l *Leader) Fresh() (began uint64, ok bool) { return l.barrier.lastProof, l.barrier.proved }

func (l *Leader) beginBarrier() {
	b := &l.barrier
	if b.inFlight || b.backoff {
		return
	}
	if !b.wanted && len(l.liveness.pings.waiting) == 0 && !l.subscribers.waiting() {
		return
	}
	b.number++
	b.inFlight, b.wanted, b.began = true, false, l.clock.seen
	l.ready.Barrier = b.number
	l.liveness.beginPongs()
	l.subscribers.beginReplies()
}

// BarrierDone reports the end of the barrier with this number. On success st is the machine's
// state, at or after the barrier.
func (l *Leader) BarrierDone(now, n uint64, ok bool, st State) {
	b := &l.barrier
	if l.epoch == 0 || !b.inFlight || n != b.number {
		return
	}
	l.enter(now)
	b.inFlight = false
	if !ok {
		l.stats.FailedBarriers++
		b.backoff, b.wanted = true, true
		l.liveness.retryPongs()
		l.subscribers.retryReplies()
		return
	}
	b.lastProof, b.proved = b.began, true
	l.pause.confirmed = l.pause.confirmed || n > l.pause.barrier
	l.liveness.pong(st)
	l.subscribers.reply(st)
}
