package client

import (
	"errors"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// errSilent: the server answered nothing for too long.
var errSilent = errors.New("server is silent")

// keepAlive sends a ping: one covers all sessions of the connection. It also finds a dead
// connection. It runs on the ping timer.
func (cn *conn) keepAlive() {
	now := cn.clock.now()
	cn.mu.Lock()
	if cn.err != nil {
		cn.mu.Unlock()
		return
	}
	silence := max(cn.period*3/2, minSilence)
	heard := time.Duration(cn.lastHeard.Load())
	if cn.unheardPing > heard && now-cn.unheardPing >= silence {
		cn.mu.Unlock()
		cn.end(errSilent)
		return
	}
	// A call that waits for an answer does not wait for the next keep-alives.
	waits, waited, begun := cn.calls.Open() > 0, cn.hadPending, cn.calls.Last() != cn.checkedID
	cn.checkedID, cn.hadPending = cn.calls.Last(), waits
	seek := false
	switch {
	case cn.probedAt != 0 && heard >= cn.probedAt:
		cn.probedAt = 0
	case cn.probedAt != 0 && now-cn.probedAt >= hungTimeout:
		cn.mu.Unlock()
		cn.end(errSilent)
		return
	}
	if waits && waited && cn.probedAt == 0 && now-heard >= minSilence {
		cn.probedAt = now
		cn.sendPing(now)
		seek = true
	}
	// The timer looks twice a period, so that silence is found half a period after it is too long
	// at the latest. A connection without sessions whose streams are busy needs no sign of life.
	since := now - cn.pingSentAt(cn.lastPing)
	needed := len(cn.sessions) > 0 || now-heard >= cn.period/2 || since >= idleKeepAlive*3/4
	if cn.lastPing == 0 || since >= cn.period*3/4 && needed {
		cn.sendPing(now)
	}
	look := cn.nextCheck()
	if cn.unheardPing > heard {
		look = min(look, cn.unheardPing+silence-now)
	}
	if cn.busy = waits || begun || cn.probedAt != 0; cn.busy {
		look = min(look, minSilence)
	}
	look = max(look, time.Millisecond)
	cn.lookAt = now + look
	cn.pingTimer.Reset(look)
	buf, more := cn.takeDirect(), len(cn.out) > 0
	cn.mu.Unlock()
	if seek {
		cn.handler.serverSilent(cn)
	}
	switch {
	case buf != nil:
		cn.write(buf) // a server that does not read holds up this goroutine, not the timer
	case more:
		cn.flush()
	}
}

// markBusy makes the timer check soon, because requests are sent from now on. mu is held.
func (cn *conn) markBusy() {
	cn.busy = true
	if cn.period/2 > minSilence {
		// Since the look before, as it were. A look that comes sooner is too soon to judge.
		cn.hadPending = cn.lookWithin(minSilence)
	}
}

// lookWithin makes the timer check sooner if it would be later, and never the other way: streams
// that come and go must not keep it from firing. A timer that should have fired is late: it does
// not run while the machine sleeps. mu is held.
func (cn *conn) lookWithin(d time.Duration) bool {
	now := cn.clock.now()
	if now+d >= cn.lookAt && now <= cn.lookAt {
		return false
	}
	cn.lookAt = now + d
	return cn.pingTimer.Reset(d) // false: it has fired, and the check is about to begin
}

// updatePeriod is called when sessions or streams came or went. mu is held.
func (cn *conn) updatePeriod() {
	before, most := cn.period, idleKeepAlive
	if len(cn.streams.byID)+len(cn.objectStreams) > 0 {
		most = streamKeepAlive
	}
	if cn.period = cn.periods.Or(most); cn.period < before {
		cn.lookWithin(cn.period / 2)
	}
}

// nextCheck is when the timer checks again: half a period from now, or up to a fiftieth of a period
// earlier, at the next beat that the clients of a machine share. Their timers then fire together,
// and a server with thousands of idle clients is woken once per beat and not per ping. mu is held.
func (cn *conn) nextCheck() time.Duration {
	d, beat := cn.period/2, cn.period/50
	if beat <= 0 {
		return d
	}
	return d - time.Duration((cn.clock.wall().UnixNano()+int64(d))%int64(beat))
}

// pingGap gathers the pings of sessions that are attached one after the other.
const pingGap = 5 * time.Millisecond

// pingFor sends a ping for an attachment unless one was sent for it at a time or later. One ping is
// for all sessions of the connection: a server pauses one that sends hundreds.
func (cn *conn) pingFor(att *attachment, since time.Duration) {
	cn.mu.Lock()
	if cn.err != nil || cn.pingSoon || cn.pingedForLocked(att, since) != 0 {
		cn.mu.Unlock()
		return
	}
	now := cn.clock.now()
	if cn.pingSoon = cn.lastPing != 0 && now-cn.pingSentAt(cn.lastPing) < pingGap; cn.pingSoon {
		time.AfterFunc(pingGap, func() {
			cn.mu.Lock()
			cn.pingSoon = false
			cn.mu.Unlock()
			cn.pingNow()
		})
		cn.mu.Unlock()
		return
	}
	cn.sendPing(now)
	cn.mu.Unlock()
	cn.flush()
}

func (cn *conn) pingNow() {
	cn.mu.Lock()
	if cn.err == nil {
		cn.sendPing(cn.clock.now())
	}
	cn.mu.Unlock()
	cn.flush()
}

// pingedFor is when the last ping was sent, if that was at a time or later, and after the
// attachment was made: the answer to an earlier one need not renew it. Else it is 0.
func (cn *conn) pingedFor(att *attachment, since time.Duration) time.Duration {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	return cn.pingedForLocked(att, since)
}

func (cn *conn) pingedForLocked(att *attachment, since time.Duration) time.Duration {
	if sent := cn.pingSentAt(cn.lastPing); cn.lastPing > att.pinged && sent >= since {
		return sent
	}
	return 0
}

// probe asks for a sign of life within minSilence. It is called when others have taken over from
// the server, which may be gone without a word; callers here would otherwise wait for the next
// keep-alives.
func (cn *conn) probe() {
	cn.mu.Lock()
	if cn.err != nil || cn.probing {
		cn.mu.Unlock()
		return
	}
	cn.probing = true
	at := cn.clock.now()
	cn.sendPing(at)
	cn.mu.Unlock()
	cn.flush()
	time.AfterFunc(minSilence, func() {
		cn.mu.Lock()
		cn.probing = false
		cn.mu.Unlock()
		if time.Duration(cn.lastHeard.Load()) < at {
			cn.end(errSilent)
		}
	})
}

// sendPing puts a ping into the buffer. The sending time is read before: it may be early, never
// late. The ping's id is that time, so a pong counts however late it is. mu is held.
func (cn *conn) sendPing(now time.Duration) {
	if cn.unheardPing <= time.Duration(cn.lastHeard.Load()) {
		cn.unheardPing = now
	}
	cn.lastPing = max(cn.lastPing, uint64(now-cn.began)+1)
	cn.out = protocol.AppendFrame(cn.out, protocol.KindPing, cn.lastPing, 0, nil)
}

// pingSentAt is when the ping with this id was sent, on the client's clock.
func (cn *conn) pingSentAt(id uint64) time.Duration { return cn.began + time.Duration(id) - 1 }

// pong processes a shard's answer to a ping: it renews all sessions at home there that are attached
// on this connection. Shard 0 renews nothing and says only that the connection works.
func (cn *conn) pong(ping, shard uint64) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if shard == 0 || ping == 0 || ping > cn.lastPing {
		return // never sent
	}
	if v := cn.renewals[shard]; v != nil {
		v.raise(cn.pingSentAt(ping))
	}
}

func (v *renewal) raise(at time.Duration) {
	for {
		old := v.at.Load()
		if int64(at) <= old || v.at.CompareAndSwap(old, int64(at)) {
			return
		}
	}
}

// maxEarlyDetaches bounds what is kept for sessions that never come to be known.
const maxEarlyDetaches = 1024
