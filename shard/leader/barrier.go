package leader

// barrierState runs one read barrier at a time for all that wait. What arrives during a barrier
// waits for the next one: a barrier proves only what began before it.
type barrierState struct {
	number   uint64 // of the newest; numbers continue across leaderships
	inFlight bool
	began    uint64 // when the newest began
	since    uint64 // when the first since the last successful one began; 0: none has

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
