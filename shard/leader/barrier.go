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

// Fresh returns when the last successful barrier of this leadership began.
func (l *Leader) Fresh() (began uint64, ok bool) { return l.barrier.lastProof, l.barrier.proved }

func (l *Leader) beginBarrier() {
	b := &l.barrier
	if b.inFlight || b.backoff {
		return
	}
	if !b.wanted && len(l.pingsWaiting) == 0 && len(l.requestsWaiting) == 0 && len(l.heartbeatsWaiting) == 0 {
		return
	}
	b.number++
	b.inFlight, b.wanted, b.began = true, false, l.clock.seen
	l.ready.Barrier = b.number

	for _, c := range l.pingsWaiting {
		c.pingInFlight, c.inFlightPing, c.pingWaiting, c.waitingPing = true, c.waitingPing, false, 0
	}
	l.pingsInFlight, l.pingsWaiting = l.pingsWaiting, l.pingsInFlight[:0]
	l.requestsInFlight, l.requestsWaiting = l.requestsWaiting, l.requestsInFlight[:0]
	l.heartbeatsInFlight, l.heartbeatsWaiting = l.heartbeatsWaiting, l.heartbeatsInFlight[:0]
}

// BarrierDone reports the end of the barrier with this number. On success st is the machine's
// state, at or after the barrier.
func (l *Leader) BarrierDone(now, n uint64, ok bool, st State) {
	b := &l.barrier
	if l.epoch == 0 || !b.inFlight || n != b.number {
		return
	}
	l.observe(now)
	b.inFlight = false
	if !ok {
		l.stats.FailedBarriers++
		b.backoff, b.wanted = true, true
		l.requeue()
		return
	}
	b.lastProof, b.proved = b.began, true
	if l.clock.paused && n > l.pauseBarrier {
		l.confirmed = true
	}
	for _, c := range l.pingsInFlight {
		if l.canPong(c) && c.atHome(st) {
			l.ready.Pongs = append(l.ready.Pongs, Pong{c.id, c.inFlightPing})
		}
		c.pingInFlight, c.inFlightPing = false, 0
	}
	clear(l.pingsInFlight)
	l.pingsInFlight = l.pingsInFlight[:0]
	l.replySubscribes(st)
	l.replyHeartbeats()
}

// requeue puts what waited for a failed barrier first in the queues for the next one.
func (l *Leader) requeue() {
	var first []*conn
	for _, c := range l.pingsInFlight {
		c.pingInFlight = false
		if c.forgotten {
			continue
		}
		if !c.pingWaiting {
			c.pingWaiting, c.waitingPing = true, c.inFlightPing
			first = append(first, c)
		}
		c.inFlightPing = 0
	}
	l.pingsWaiting = append(first, l.pingsWaiting...)
	l.requestsWaiting = append(l.requestsInFlight, l.requestsWaiting...)
	l.heartbeatsWaiting = append(l.heartbeatsInFlight, l.heartbeatsWaiting...)
	l.pingsInFlight, l.requestsInFlight, l.heartbeatsInFlight = nil, nil, nil
}
