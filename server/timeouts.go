package server

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// sweepPeriod is how often connections are looked at. What is overdue is found that much later at worst.
const sweepPeriod = 500 * time.Millisecond

// A sweep ends so many connections at once, and pauses then.
const (
	maxClosesPerBurst = 32
	sweepPause        = 4 * time.Millisecond
)

// openListeners starts the event loops and the sweeper, and lets clients in.
func (s *Server) openListeners(context.Context) error {
	if err := s.plain.open(); err != nil {
		return err
	}
	if s.tls != nil {
		s.tls.open()
	}
	s.listening = true
	s.running.Go(s.wakeLoop)
	s.running.Go(s.renewals.run)
	if m, ok := s.clock.(*replica.ManualClock); ok {
		s.stopTicks = m.OnTick(func(thorough bool) {
			if !thorough {
				return
			}
			s.sweep()
			s.pausedConns.resume(math.MaxInt, math.MaxInt)
		})
		return nil
	}
	s.running.Go(s.pausedConns.run)
	s.running.Go(func() {
		t := time.NewTicker(sweepPeriod)
		defer t.Stop()
		for {
			select {
			case <-s.ctx.Done():
				return
			case <-t.C:
				s.sweep()
			}
		}
	})
	return nil
}

// sweep ends the connections that take too long over something, by the server's clock, and looks at the memory.
func (s *Server) sweep() {
	s.memory.measure()
	now := s.clock.Now()
	s.sweeps.next()
	l := &s.cfg.Limits
	o := s.borrowOutbox()
	defer s.returnOutbox(o)
	ended := 0
	s.conns.each(func(c *conn) {
		if ended >= maxClosesPerBurst && s.stopTicks == nil {
			// Those that came together are not ended together: each costs its loop the time of several requests.
			ended = 0
			time.Sleep(sweepPause)
		}
		since := func(ns int64) time.Duration { return now - time.Duration(ns) }
		if c.ending.Load() {
			if since(c.endedAt.Load()) > lingerTimeout {
				ended++
				c.close(closeImmediate, 0, "")
			}
			return
		}
		if !c.helloDone.Load() && now-c.opened > l.HelloTimeout {
			ended++
			if c.close(closeGraceful, protocol.StatusBadRequest, fmt.Sprintf("no hello came within %v", l.HelloTimeout)) {
				s.metrics.helloCut.Inc()
			}
			return
		}
		if began := c.frameSince.Load(); began != 0 && !c.paused.Load() && since(began) > l.FrameTimeout {
			ended++
			if c.close(closeGraceful, protocol.StatusBadRequest, fmt.Sprintf("a frame took longer than %v to come", l.FrameTimeout)) {
				s.metrics.frameCut.Inc()
			}
			return
		}
		if since(c.lastReceived.Load()) > max(l.IdleTimeout, time.Duration(c.keepAlive.Load())) {
			ended++
			if c.close(closeGraceful, protocol.StatusUnavailable, "nothing was heard for too long; send pings") {
				s.metrics.idleCut.Inc()
			}
			return
		}
		if c.out.unsent.Load() > 0 && c.out.tooOld(now, l.OutAge) {
			c.closeSlow()
		}
	})
}
