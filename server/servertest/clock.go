package servertest

import (
	"time"

	"github.com/signalbox-dev/signalbox/shard/replica"
)

// Advance moves the server's clock by d and returns when everything that became due has happened: expiries, acquire timeouts, and what they set free. Clients that
// are connected count as heard from all the while, as their keep-alives would have it; their own clocks stay where they are, so what they do by
// time (an acquire's context, a lease's deadline after a lost link) still takes real time. A connection that was closed before the call is noticed first.
//
// What the end of a session brings about at other shards has happened too: its locks are free, and who waited for them has them. What clients are told of it is on its way to
// them when Advance returns; wait for that by the call or the context that it ends, and not by more time.
//
// Deadlines that fall due in their thousands are spread over log time by the server, some 5,000 a second: advance a little further for those.
func (s *Server) Advance(d time.Duration) {
	s.helper()
	s.advance(d, true)
}

// AdvanceSilent is Advance with clients that say nothing meanwhile, as if the network swallowed all they sent: their sessions are detached, and end when
// their timeout is over.
func (s *Server) AdvanceSilent(d time.Duration) {
	s.helper()
	s.advance(d, false)
}

// finalTicks are ticks after the last step: what one shard tells another, at the end of a session, is done by then.
const finalTicks = 3

// stepsBeforeSkipping are steps before any time is left out: what clients did before the call is in the log
// by then.
const stepsBeforeSkipping = 4

// quiescencePeriod is how often the connections are looked at, and all shards waited for together, while the clock moves.
const quiescencePeriod = 30 * time.Second

func (s *Server) advance(d time.Duration, heard bool) {
	s.helper()
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
				s.clock.SkipIdle(by, s.current.HearAll)
				continue
			}
		}
		step := min(d, replica.ManualStep)
		d -= step
		if heard && s.current != nil {
			s.current.HearAll()
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

// settle waits until the server has noticed the clients that are gone: a session's timeout begins when its connection ends, and the test means before
// the time that is about to pass.
func (s *Server) awaitClosedConns() {
	for end := time.Now().Add(closedConnsTimeout); s.current != nil && time.Now().Before(end); time.Sleep(pollInterval) {
		if s.proxy.agreesWith(s.current.Connections()) {
			return
		}
	}
}

const (
	closedConnsTimeout = 5 * time.Second // real; a client that connects again and again keeps it from settling
	pollInterval       = 200 * time.Microsecond
)

// Now is the server's clock as time of day: since when, in descriptions. It is display only; no rule compares it.
func (s *Server) Now() time.Time {
	if s.clock == nil {
		return time.Now()
	}
	return s.clock.Wall()
}
