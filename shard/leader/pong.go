package leader

import "slices"

// ping notes a ping, which waits for the next barrier.
func (l *liveness) ping(connID, ping uint64) {
	c := l.conns[connID]
	if c == nil || c.cut {
		return
	}
	// A detach must not be dated before a ping that was answered, whatever the driver reports of
	// the connection later.
	c.last = max(c.last, l.clock.now())
	c.waitingPing = ping
	if !c.pingWaiting {
		c.pingWaiting = true
		l.pings.waiting = append(l.pings.waiting, c)
	}
}

// beginPongs has the pings that arrived so far wait for the barrier that begins now.
func (l *liveness) beginPongs() {
	for _, c := range l.pings.waiting {
		c.pingInFlight, c.inFlightPing, c.pingWaiting, c.waitingPing = true, c.waitingPing, false, 0
	}
	l.pings.begin()
}

// pong answers the pings whose barrier succeeded, on a state at or after the barrier. A ping that
// cannot be answered yet waits for the next tick: its client sends another one only when a good
// part of its lease is over.
func (l *liveness) pong(st State) {
	for _, c := range l.pings.inFlight {
		ping := c.inFlightPing
		c.pingInFlight, c.inFlightPing = false, 0
		if c.canPong() && c.atHome(st) {
			l.ready.Pongs = append(l.ready.Pongs, Pong{c.id, ping})
		} else {
			l.delayPong(c, ping)
		}
	}
	l.pings.done()
}

// delayPong has a ping wait for the next tick, unless a newer one waits.
func (l *liveness) delayPong(c *conn, ping uint64) {
	if c.cut || c.forgotten || c.pingWaiting || len(c.sessions) == 0 {
		return
	}
	c.pingWaiting, c.waitingPing = true, ping
	l.latePings = append(l.latePings, c)
}

// retryLatePongs has the pings that could not be answered wait for the next barrier.
func (l *liveness) retryLatePongs() {
	for _, c := range l.latePings {
		if !c.cut && !c.forgotten {
			l.pings.waiting = append(l.pings.waiting, c)
		}
	}
	clear(l.latePings)
	l.latePings = l.latePings[:0]
}

// retryPongs has the pings whose barrier failed wait for the next one, unless a newer ping waits.
func (l *liveness) retryPongs() {
	var first []*conn
	for _, c := range l.pings.inFlight {
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
	l.pings.inFlight = first
	l.pings.requeue()
}

// dropPongs takes back what may not be answered any more: a cut may have come after the barrier.
func (l *liveness) dropPongs() {
	l.ready.Pongs = slices.DeleteFunc(l.ready.Pongs, func(p Pong) bool {
		c := l.conns[p.Conn]
		if c == nil || c.canPong() {
			return c == nil
		}
		l.delayPong(c, p.Ping)
		return true
	})
}
