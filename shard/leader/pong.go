package leader

import "slices"

// ping notes a ping, which waits for the next barrier.
func (v *liveness) ping(connID, ping uint64) {
	c := v.conns[connID]
	if c == nil || c.cut {
		return
	}
	// A detach must not be dated before a ping that was answered, whatever the driver reports of
	// the connection later.
	c.last = max(c.last, v.clock.now())
	c.waitingPing = ping
	if !c.pingWaiting {
		c.pingWaiting = true
		v.pings.waiting = append(v.pings.waiting, c)
	}
}

// beginPongs has the pings that arrived so far wait for the barrier that begins now.
func (v *liveness) beginPongs() {
	for _, c := range v.pings.waiting {
		c.pingInFlight, c.inFlightPing, c.pingWaiting, c.waitingPing = true, c.waitingPing, false, 0
	}
	v.pings.begin()
}

// pong answers the pings whose barrier succeeded, on a state at or after the barrier. A ping that
// cannot be answered yet waits for the next tick: its client sends another one only when a good
// part of its lease is over.
func (v *liveness) pong(st State) {
	for _, c := range v.pings.inFlight {
		ping := c.inFlightPing
		c.pingInFlight, c.inFlightPing = false, 0
		if c.canPong() && c.atHome(st) {
			v.ready.Pongs = append(v.ready.Pongs, Pong{c.id, ping})
		} else {
			v.delayPong(c, ping)
		}
	}
	v.pings.done()
}

// delayPong has a ping wait for the next tick, unless a newer one waits.
func (v *liveness) delayPong(c *conn, ping uint64) {
	if c.cut || c.forgotten || c.pingWaiting || len(c.sessions) == 0 {
		return
	}
	c.pingWaiting, c.waitingPing = true, ping
	v.latePings = append(v.latePings, c)
}

// retryLatePongs has the pings that could not be answered wait for the next barrier.
func (v *liveness) retryLatePongs() {
	for _, c := range v.latePings {
		if !c.cut && !c.forgotten {
			v.pings.waiting = append(v.pings.waiting, c)
		}
	}
	clear(v.latePings)
	v.latePings = v.latePings[:0]
}

// retryPongs has the pings whose barrier failed wait for the next one, unless a newer ping waits.
func (v *liveness) retryPongs() {
	var first []*conn
	for _, c := range v.pings.inFlight {
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
	v.pings.inFlight = first
	v.pings.requeue()
}

// dropPongs takes back what may not be answered any more: a cut may have come after the barrier.
func (v *liveness) dropPongs() {
	v.ready.Pongs = slices.DeleteFunc(v.ready.Pongs, func(p Pong) bool {
		c := v.conns[p.Conn]
		if c == nil || c.canPong() {
			return c == nil
		}
		v.delayPong(c, p.Ping)
		return true
	})
}
