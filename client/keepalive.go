package client

import (
	"errors"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// errSilent: the server answered nothing for too long.
var errSilent = errors.New("server is silent")

// keepAlive sends a ping: one covers all sessions of the connection. It also finds a connection that died without a word. It runs on the ping timer.
func (cn *conn) keepAlive() {
	now := cn.clock.now()
	cn.mu.Lock()
	if cn.err != nil {
		cn.mu.Unlock()
		return
	}
	silence := max(cn.period*3/2, leastSilence)
	for _, p := range cn.pings {
		if p.id != 0 && now-p.at >= silence && time.Duration(cn.lastHeard.Load()) < p.at {
			cn.mu.Unlock()
			cn.end(errSilent)
			return
		}
	}
	// Whoever waits for an answer does not wait for the next keep-alives.
	waits, waited, begun := cn.calls.used > 0, cn.waited, cn.calls.last != cn.looked
	cn.looked, cn.waited = cn.calls.last, waits
	heard := time.Duration(cn.lastHeard.Load())
	seek := false
	switch {
	case cn.asked != 0 && heard >= cn.asked:
		cn.asked = 0
	case cn.asked != 0 && now-cn.asked >= hungAfter:
		cn.mu.Unlock()
		cn.end(errSilent)
		return
	}
	if waits && waited && cn.asked == 0 && now-heard >= leastSilence {
		cn.asked = now
		cn.sendPing(now)
		seek = true
	}
	// The timer looks twice a period, so that silence is found half a period after it is too long at the latest.
	if now-cn.pings[cn.lastPing%pingsKept].at >= cn.period*3/4 {
		cn.sendPing(now)
	}
	look := cn.nextLook()
	for _, p := range cn.pings {
		if p.id != 0 && heard < p.at {
			look = min(look, p.at+silence-now)
		}
	}
	if cn.busy = waits || begun || cn.asked != 0; cn.busy {
		look = min(look, leastSilence)
	}
	cn.pingTimer.Reset(max(look, time.Millisecond))
	cn.mu.Unlock()
	cn.flush()
	if seek {
		cn.owner.silent(cn)
	}
}

// beBusy has the timer look soon: requests are sent from now on. mu is held.
func (cn *conn) beBusy() {
	cn.busy = true
	if cn.period/2 > leastSilence {
		cn.pingTimer.Reset(leastSilence)
		cn.waited = true // since the look before, as it were
	}
}

// nextLook is when the timer is to look again: half a period from now, or up to a fiftieth of a period before that, at the next beat that the clients of a machine
// have in common. So their timers fire together, and a server that keeps thousands of idle clients is woken by a beat and not by each ping. mu is held.
func (cn *conn) nextLook() time.Duration {
	d, beat := cn.period/2, cn.period/50
	if beat <= 0 {
		return d
	}
	return d - time.Duration((cn.clock.wall().UnixNano()+int64(d))%int64(beat))
}

// pingNow sends a ping out of turn.
func (cn *conn) pingNow() {
	cn.mu.Lock()
	if cn.err == nil {
		cn.sendPing(cn.clock.now())
	}
	cn.mu.Unlock()
	cn.flush()
}

// suspect asks for a sign of life within leastSilence, out of turn: others have taken over from the server, which may have gone without a word. Who waits for an answer
// here would else wait for the next keep-alives.
func (cn *conn) suspect() {
	cn.mu.Lock()
	if cn.err != nil || cn.suspected {
		cn.mu.Unlock()
		return
	}
	cn.suspected = true
	at := cn.clock.now()
	cn.sendPing(at)
	cn.mu.Unlock()
	cn.flush()
	time.AfterFunc(leastSilence, func() {
		cn.mu.Lock()
		cn.suspected = false
		cn.mu.Unlock()
		if time.Duration(cn.lastHeard.Load()) < at {
			cn.end(errSilent)
		}
	})
}

// sendPing puts a ping into the buffer. Its sending time is read before: a vouched moment may be early, never late. mu is held.
func (cn *conn) sendPing(now time.Duration) {
	cn.lastPing++
	cn.pings[cn.lastPing%pingsKept] = sentPing{id: cn.lastPing, at: now}
	cn.out = protocol.AppendFrame(cn.out, protocol.KindPing, cn.lastPing, 0, nil)
}

// pong takes in that a shard vouches, as of the ping, for all sessions at home there that are attached on this connection. Shard 0 vouches for nobody: it says
// that the connection works.
func (cn *conn) pong(ping, shard uint64) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	p := cn.pings[ping%pingsKept]
	if shard == 0 || ping == 0 || p.id != ping {
		return // too old to be remembered, or never sent
	}
	if v := cn.vouches[shard]; v != nil {
		v.raise(p.at)
	}
}

func (v *vouch) raise(at time.Duration) {
	for {
		old := v.at.Load()
		if int64(at) <= old || v.at.CompareAndSwap(old, int64(at)) {
			return
		}
	}
}

// sendAway notes that pongs vouch for no attach of the session up to this epoch. Its reply may have been read before, and be taken in only later.
func (cn *conn) sendAway(session, epoch uint64) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	cn.away[session] = max(cn.away[session], epoch)
}

// maxStrays bounds what is kept for sessions that never come to be known.
const maxStrays = 1024

// stray is sendAway for news that come right behind the reply to a start or a restore, when nobody knows the session yet: it is not settled then, and learns the truth from its
// next attach. Without it pongs for others would vouch for it until its first request.
func (cn *conn) stray(session, epoch uint64) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if len(cn.away) < maxStrays {
		cn.away[session] = max(cn.away[session], epoch)
	}
}

// found ends what stray keeps for a session that is known, and over.
func (cn *conn) found(session uint64) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	delete(cn.away, session)
}

// settle makes the connection keep a session alive that was attached on it at this home, under this epoch; false if the connection is over, or the attach is.
func (cn *conn) settle(s *Session, shard, epoch uint64, period time.Duration) (*vouch, bool) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if cn.err != nil || cn.away[s.id] >= epoch {
		return nil, false
	}
	delete(cn.away, s.id)
	v := cn.vouches[shard]
	if v == nil {
		v = &vouch{}
		cn.vouches[shard] = v
	}
	cn.residents[s] = struct{}{}
	if period < cn.period {
		cn.period = period
		cn.pingTimer.Reset(period / 2)
	}
	return v, true
}

// unsettle is told when a session is not attached here any more.
func (cn *conn) unsettle(s *Session) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	delete(cn.residents, s)
	if len(cn.residents) == 0 && cn.err == nil {
		cn.period = idleKeepAlive
	}
}
