package lead

// barriers runs one read barrier at a time and shares it among all that wait. What arrives while one is under way waits for the next: a
// barrier answers only what was there before it began.
type barriers struct {
	n      uint64 // number of the newest; numbers go on over leaderships
	flying bool
	began  uint64 // when the newest began

	fresh   uint64 // when the last successful one began
	ok      bool   // there was one in this leadership
	backoff bool   // the last one failed: the next begins after a tick
	need    bool   // a self-check is due: begin one although nothing waits
}

// Fresh says when the last successful barrier of this leadership began.
func (l *Leader) Fresh() (began uint64, ok bool) { return l.bar.fresh, l.bar.ok }

func (l *Leader) beginBarrier() {
	b := &l.bar
	if b.flying || b.backoff {
		return
	}
	if !b.need && len(l.pingWait) == 0 && len(l.askWait) == 0 && len(l.beatWait) == 0 {
		return
	}
	b.n++
	b.flying, b.need, b.began = true, false, l.clock.seen
	l.ready.Barrier = b.n

	for _, c := range l.pingWait {
		c.flying, c.ping, c.waiting, c.wait = true, c.wait, false, 0
	}
	l.pingFly, l.pingWait = l.pingWait, l.pingFly[:0]
	l.askFly, l.askWait = l.askWait, l.askFly[:0]
	l.beatFly, l.beatWait = l.beatWait, l.beatFly[:0]
}

// BarrierDone reports that the barrier with this number ended. On success st is the machine's state now, at or after the barrier.
func (l *Leader) BarrierDone(now, n uint64, ok bool, st State) {
	b := &l.bar
	if l.epoch == 0 || !b.flying || n != b.n {
		return
	}
	l.observe(now)
	b.flying = false
	if !ok {
		l.stats.FailedBarriers++
		b.backoff, b.need = true, true
		l.requeue()
		return
	}
	b.fresh, b.ok = b.began, true
	if l.clock.held && n > l.holdAfter {
		l.confirmed = true
	}
	if plantEarlyBarrier {
		for _, c := range l.pingWait {
			if !c.flying {
				l.pingFly = append(l.pingFly, c)
			}
			c.flying, c.ping, c.waiting, c.wait = true, c.wait, false, 0
		}
		l.pingWait = nil
	}
	for _, c := range l.pingFly {
		if l.mayPong(c) && c.atHome(st) {
			l.ready.Pongs = append(l.ready.Pongs, Pong{c.id, c.ping})
		}
		c.flying, c.ping = false, 0
	}
	clear(l.pingFly)
	l.pingFly = l.pingFly[:0]
	l.answerAsks(st)
	l.answerBeats()
}

// requeue puts what waited for a failed barrier in front of what waits for the next one.
func (l *Leader) requeue() {
	var first []*conn
	for _, c := range l.pingFly {
		c.flying = false
		if c.gone {
			continue
		}
		if !c.waiting {
			c.waiting, c.wait = true, c.ping
			first = append(first, c)
		}
		c.ping = 0
	}
	l.pingWait = append(first, l.pingWait...)
	l.askWait = append(l.askFly, l.askWait...)
	l.beatWait = append(l.beatFly, l.beatWait...)
	l.pingFly, l.askFly, l.beatFly = nil, nil, nil
}
