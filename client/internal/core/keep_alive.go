package core

import (
	"errors"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Keep-alive of connections. See R19.
const (
	idlePeriod   = 15 * time.Second // between pings of a connection without sessions and streams
	streamPeriod = 4 * time.Second  // of one with streams, at most
	minSilence   = time.Second      // a server is never taken for silent sooner
	hungTimeout  = 2 * time.Second  // a server that a request waits for, and that was asked for a sign of life, has hung
)

// errSilent: the server answered nothing for too long.
var errSilent = errors.New("server is silent")

// keepAlive sends the pings of a connection: one covers all its sessions. It also finds a dead
// connection.
type keepAlive struct {
	c        *Conn
	timer    timer
	began    time.Duration
	lastPing uint64        // id of the last ping: when it was sent, in nanoseconds since began, from 1; 0: none was
	unheard  time.Duration // when the first ping was sent since the connection was heard; not after that: none was
	periods  shortest      // of the pings of its sessions
	period   time.Duration // between pings

	pingSoon   bool          // a ping is sent within pingGap
	busy       bool          // requests were sent lately: the timer looks each minSilence
	checkedID  uint64        // id of the last request when the timer looked
	waitsSince time.Duration // since when requests have waited, without a moment in which none did
	// when a silent server was asked for a sign of life, for the sake of a request; 0: it was not
	askedAt  time.Duration
	probedAt time.Duration // the same because others have taken over from it
}

func (k *keepAlive) of(c *Conn) { k.c, k.timer.of, k.period = c, k, idlePeriod }

func (k *keepAlive) start(e *Engine) {
	k.began = e.now
	e.timers.set(&k.timer, e.now+k.period/2)
	if k.busy { // requests went out with the hello
		k.markBusy(e)
	}
}

func (k *keepAlive) stop(e *Engine) { e.timers.stop(&k.timer) }

// due looks whether a ping is to be sent, and whether the server is alive.
func (k *keepAlive) due(e *Engine) {
	c, now := k.c, e.now
	silence := max(k.period*3/2, minSilence)
	if k.probedAt != 0 && c.heard >= k.probedAt {
		k.probedAt = 0
	}
	if k.askedAt != 0 && c.heard >= k.askedAt {
		k.askedAt = 0
	}
	if k.unheard > c.heard && now-k.unheard >= silence ||
		k.probedAt != 0 && now-k.probedAt >= minSilence || k.askedAt != 0 && now-k.askedAt >= hungTimeout {
		c.end(e, errSilent)
		return
	}
	// A request that waits for an answer does not wait for the next keep-alives.
	waits, begun := c.requests.Open() > 0, c.requests.Last() != k.checkedID
	k.checkedID = c.requests.Last()
	answerDue := max(c.heard, k.waitsSince) + minSilence
	if waits && k.askedAt == 0 && now >= answerDue {
		k.askedAt = now
		k.ping(e)
		e.routes.findLeader(e, c)
	}
	// The timer looks twice a period, so that silence is found half a period after it is too long
	// at the latest. A connection without sessions that is busy needs no sign of life.
	if k.pingSoon {
		k.pingSoon = false
		k.ping(e)
	}
	since := now - k.sentAt(k.lastPing)
	needed := c.sessions.first != nil || now-c.heard >= k.period/2 || since >= idlePeriod*3/4
	if k.lastPing == 0 && since > k.period/2 || since >= k.period*3/4 && needed {
		k.ping(e)
	}
	look := k.period / 2
	if beat := k.period / 50; beat > 0 { // which the clients of a machine share, see Engine.Clocks
		look -= (now + e.wallAhead + look) % beat
	}
	if k.unheard > c.heard {
		look = min(look, k.unheard+silence-now)
	}
	if k.probedAt != 0 {
		look = min(look, k.probedAt+minSilence-now)
	}
	if k.busy = waits || begun || k.askedAt != 0; k.busy {
		look = min(look, minSilence)
	}
	if waits && k.askedAt == 0 {
		look = min(look, answerDue-now)
	}
	e.timers.set(&k.timer, now+max(look, time.Millisecond))
}

// ping sends a ping. Its id is the time at which it is sent, so a pong counts however late it is.
func (k *keepAlive) ping(e *Engine) {
	if k.unheard <= k.c.heard {
		k.unheard = e.now
	}
	k.lastPing = max(k.lastPing, uint64(e.now-k.began)+1)
	k.c.Out = protocol.AppendFrame(k.c.Out, protocol.KindPing, k.lastPing, 0, nil)
	k.c.wrote(e)
}

// pingGap gathers the pings of sessions that are attached one after the other.
const pingGap = 5 * time.Millisecond

// pingFor sends a ping for an attachment, unless one was sent for it at a time or later: the answer
// to one from before the attachment need not renew it. One ping is for all sessions of the
// connection: a server pauses one that sends hundreds.
func (k *keepAlive) pingFor(e *Engine, a *attachment, since time.Duration) {
	last := k.sentAt(k.lastPing)
	switch {
	case k.pingSoon || k.lastPing > a.pinged && last >= since:
	case k.lastPing != 0 && e.now-last < pingGap:
		k.pingSoon = true
		k.lookWithin(e, pingGap)
	default:
		k.ping(e)
	}
}

// sentAt is when the ping with this id was sent.
func (k *keepAlive) sentAt(id uint64) time.Duration { return k.began + time.Duration(id) - 1 }

// probe asks for a sign of life within minSilence. It is called when others have taken over from
// the server, which may be gone without a word.
func (k *keepAlive) probe(e *Engine) {
	if k.probedAt == 0 {
		k.probedAt = e.now
		k.ping(e)
		k.lookWithin(e, minSilence)
	}
}

// markBusy makes the timer look within minSilence, because requests are sent from now on.
func (k *keepAlive) markBusy(e *Engine) {
	k.busy = true
	k.lookWithin(e, minSilence)
}

// lookWithin makes the timer look sooner if it would be later, and never the other way.
func (k *keepAlive) lookWithin(e *Engine, d time.Duration) {
	if k.timer.place != 0 && e.now+d < k.timer.at {
		e.timers.set(&k.timer, e.now+d)
	}
}

// silent reports whether the server was asked for a sign of life, after a second in which requests
// waited and nothing came, and has not given one.
func (k *keepAlive) silent() bool { return k.askedAt > k.c.heard }

// add keeps a session alive by pings with this period.
func (k *keepAlive) add(e *Engine, period time.Duration) {
	k.periods.Add(period)
	k.update(e)
}

// remove is the end of add.
func (k *keepAlive) remove(e *Engine, period time.Duration) {
	k.periods.Remove(period)
	k.update(e)
}

func (k *keepAlive) update(e *Engine) {
	before := k.period
	most := idlePeriod
	if k.c.streams.len() > 0 {
		most = streamPeriod
	}
	if k.period = k.periods.Or(most); k.period < before {
		k.lookWithin(e, k.period/2)
	}
}

// renewal is the latest sending time of a ping that a home shard answered on a connection. All
// sessions that are attached there at that home share it.
type renewal struct {
	shard uint64
	at    time.Duration
}

// renewal is where the pongs of a home shard are noted.
func (c *Conn) renewal(shard uint64) *renewal {
	for _, v := range c.renewals {
		if v.shard == shard {
			return v
		}
	}
	v := &renewal{shard: shard}
	c.renewals = append(c.renewals, v)
	return v
}

// pong is a shard's answer to a ping: it renews all sessions at home there that are attached on
// this connection, from the time at which the ping was sent. Shard 0 renews nothing. See R3.
func (c *Conn) pong(ping, shard uint64) {
	if shard == 0 || ping == 0 || ping > c.keepAlive.lastPing {
		return // never sent
	}
	for _, v := range c.renewals {
		if v.shard == shard {
			v.at = max(v.at, c.keepAlive.sentAt(ping))
		}
	}
}
