package servertest

import (
	"time"

	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// Advance moves the server's clock by d and returns when everything that became due has happened:
// expiries, acquire timeouts, and what they set free. Connected clients count as heard from all the
// while, as their keep-alives would have it. Their own clocks do not move, so what they do by time
// (an acquire's context, a lease's deadline after a lost connection) still takes real time. A
// connection that was closed before the call is noticed first.
//
// What the end of a session causes at other shards has happened too: its locks are free, and their
// waiters have them. The clients' events are on their way when Advance returns. Wait for those by
// the call or the context that they end, and not by more time.
//
// The server spreads deadlines that fall due in their thousands over log time, some 5,000 a second:
// advance a little further for those.
func (s *Server) Advance(d time.Duration) { s.advance(d, true) }

// AdvanceSilent is Advance with clients that send nothing meanwhile, as if the network swallowed
// everything. Their sessions are detached, and end when their timeout is over.
func (s *Server) AdvanceSilent(d time.Duration) { s.advance(d, false) }

// finalTicks are ticks after the last step: notices between shards at the end of a session are
// handled by then.
const finalTicks = 3

// stepsBeforeSkipping are steps before any time is skipped: what clients did before the call is in
// the log by then.
const stepsBeforeSkipping = 4

// quiescencePeriod is how often Advance waits for all shards together while the clock moves.
const quiescencePeriod = 30 * time.Second

func (s *Server) advance(d time.Duration, heard bool) {
	if s.clock == nil {
		s.fail("the server runs in real time; leave out RealTime to advance its clock")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awaitClosedConns()
	for n, since := 0, time.Duration(0); d > 0; n++ {
		if heard && n >= stepsBeforeSkipping && s.current != nil {
			if due, has := s.clock.Due(); !has || due > replica.ManualStep {
				by := d
				if has {
					by = min(d, due)
				}
				d -= by
				s.clock.SkipIdle(by, s.hearAll)
				continue
			}
		}
		step := min(d, replica.ManualStep)
		d -= step
		if heard && s.current != nil {
			s.hearAll()
		}
		if since += step; since < quiescencePeriod {
			s.clock.Step(step)
			continue
		}
		since = 0
		s.clock.Advance(step)
	}
	for range finalTicks {
		s.clock.Tick()
	}
}

// hearAll counts every open connection as heard from now: the clients' keep-alives run in real time
// and cannot keep up with a clock that is moved.
func (s *Server) hearAll() {
	now := s.clock.Now()
	s.current.Parts().Transport.Each(func(c *transport.Conn) { c.Heard(now) })
}

// awaitClosedConns waits until the server has noticed the clients that are gone. A session's
// timeout begins when its connection ends, and the test means before the time that is about to
// pass.
func (s *Server) awaitClosedConns() {
	for end := time.Now().Add(closedConnsTimeout); s.current != nil && time.Now().Before(end); time.Sleep(pollInterval) {
		if s.proxy.agreesWith(s.current.Parts().Transport.Connections()) {
			return
		}
	}
}

const (
	closedConnsTimeout = 5 * time.Second // real time; a client that reconnects all the time makes the wait run into it
	pollInterval       = 200 * time.Microsecond
)

// Now is the server's clock as time of day: since when, in descriptions. It is display only; no
// rule compares it.
func (s *Server) Now() time.Time {
	if s.clock == nil {
		return time.Now()
	}
	return s.clock.Wall()
}
