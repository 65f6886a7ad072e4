package replica

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/lead"
)

func (s *Shard) dutyLoop() {
	defer s.wg.Done()
	d := &s.duties
	route := s.cfg.Route
	if route == nil {
		route = func(uint8, uint32) (uint64, uint64) { return 0, 0 }
	}
	w := dutyWorker{s: s, d: d, l: lead.New(lead.Config{
		Shard: s.cfg.ID, Route: route, SelfCheck: uint64(s.readPeriod() / time.Millisecond),
	})}
	for {
		select {
		case <-d.wakeC:
		case <-s.stopC:
			w.l.Stop()
			w.carryOut(w.l.Take())
			d.mu.Lock()
			d.ended = true
			list := d.queue
			d.queue = nil
			d.mu.Unlock()
			for i := range list {
				if c := list[i].wake; c != nil {
					close(c)
				}
			}
			return
		}
		d.mu.Lock()
		list := d.queue
		d.queue = d.spare[:0]
		d.spare = nil
		d.asleep = true // what is put from here on wakes it again
		d.inbox, d.ticking = 0, false
		d.busy = true
		d.mu.Unlock()

		for i := range list {
			if i%64 == 0 {
				w.now = s.steady(s.nowMS())
			}
			w.do(&list[i])
			if x := &list[i]; x.wake != nil || i%64 == 63 {
				w.carryOut(w.l.Take())
				if x.wake != nil {
					close(x.wake)
				}
			}
		}
		w.carryOut(w.l.Take())
		w.stamp()

		clear(list)
		d.mu.Lock()
		d.spare = list[:0]
		d.busy = false
		d.mu.Unlock()
	}
}

// dutyWorker is the goroutine's own state.
type dutyWorker struct {
	s      *Shard
	d      *duties
	l      *lead.Leader
	term   uint64
	now    uint64 // ms, host's clock: read now and then, since reading it is a call of the system
	guests []uint64
}

func (w *dutyWorker) do(x *duty) {
	s, l, now := w.s, w.l, w.now
	switch x.kind {
	case dutyBegin:
		// The guests are read a little later than the entry that began this. What changed in between is in the queue behind it, in order, so that the leader ends up
		// with the truth all the same.
		w.term = x.epoch >> 16
		l.Start(s.steady(x.a), x.epoch, x.more, w.readGuests())
	case dutyEnd:
		w.term = 0
		l.Stop()
	case dutyAttached:
		conn := x.a
		if conn != 0 && s.heard(conn) == 0 {
			conn = 0 // closed before its attach was applied; ConnClosed came, or comes, without effect
		}
		l.Attached(now, conn, x.b, x.epoch, x.more, x.text)
	case dutyBound:
		l.Bind(now, x.a, x.b, x.epoch, x.more)
	case dutyDetached:
		l.Detached(now, x.b, x.epoch, x.text)
	case dutyEnded:
		l.Ended(now, x.b)
	case dutyGuestHeld:
		l.GuestHeld(now, x.b)
	case dutyGuestIdle:
		l.GuestIdle(now, x.b)
	case dutyFrozen:
		l.BucketsFrozen(now, uint32(x.a), uint32(x.b))
	case dutyActive:
		l.BucketsActive(now)
	case dutyLeft:
		l.BucketsLeft(now, uint32(x.a), uint32(x.b))
	case dutyClosed:
		l.ConnClosed(now, x.a, s.steady(x.more))
	case dutyPing:
		l.Ping(now, x.a, x.b)
	case dutyDone:
		l.Done(now, x.a, x.flag)
	case dutyBarrier:
		s.View(func(m *shard.Machine) { l.BarrierDone(now, x.a, x.flag, (*leadState)(m)) })
	case dutyRoutes:
		l.RouteChanged(now)
	case dutyHandOver:
		l.HandOver(now, w.heard)
	case dutyReceive:
		s.View(func(m *shard.Machine) { l.Receive(now, x.a, x.bytes, (*leadState)(m)) })
	case dutyTick:
		var next uint64
		var has bool
		s.View(func(m *shard.Machine) {
			next, has = m.NextDeadline()
			s.selfCheck.Store(m.SelfCheck())
			s.grace.Store(m.Grace())
		})
		l.SetSelfCheck(uint64(s.readPeriod() / time.Millisecond))
		l.Tick(now, w.heard, next, has)
	case dutyLeap:
		l.Leap(now, x.a)
	}
}

func (w *dutyWorker) readGuests() []uint64 {
	w.guests = w.guests[:0]
	w.s.View(func(m *shard.Machine) {
		m.RemoteSessions(func(session, _ uint64) bool {
			w.guests = append(w.guests, session)
			return true
		})
	})
	return w.guests
}

func (s *Shard) heard(conn uint64) time.Duration {
	if s.cfg.Heard == nil {
		return 0
	}
	return s.cfg.Heard(conn)
}

func (w *dutyWorker) heard(conn uint64) (at uint64, open bool) {
	d := w.s.heard(conn)
	return w.s.steady(uint64(d / time.Millisecond)), d != 0
}

// carryOut does what the leader wants done, cuts first.
func (w *dutyWorker) carryOut(r *lead.Ready) {
	s := w.s
	for i := range r.Cut {
		if c := &r.Cut[i]; c.Reason == "" {
			s.sink.Detach(s, c.Conn)
		} else {
			s.sink.Cut(s, c.Conn, c.Reason)
		}
	}
	for i := range r.Pongs {
		s.sink.Pong(s, r.Pongs[i].Conn, r.Pongs[i].Ping)
	}
	for i := range r.Commands {
		c := &r.Commands[i]
		if s.line.submitWait(c.Command, Origin{}, wait{note: c.Note}) != protocol.StatusOK {
			w.d.done(c.Note, false)
		}
	}
	if s.cfg.Peers != nil {
		for i := range r.Peers {
			s.cfg.Peers.Send(r.Peers[i].To, s.cfg.ID, r.Peers[i].Bytes)
		}
	}
	if r.Barrier != 0 {
		n := r.Barrier
		s.Barrier(func(ok bool) { w.d.put(duty{kind: dutyBarrier, a: n, flag: ok}) })
	}
	if r.Tick {
		w.stamp()
		s.line.askTick()
	}
	if r.Compare {
		w.l.Holdings(s.steady(s.nowMS()), w.readGuests())
		w.carryOut(w.l.Take())
	}
}

func (w *dutyWorker) stamp() {
	if w.term == 0 {
		return
	}
	now := w.s.nowMS()
	w.d.publish(w.term, now, w.l.LogTime(w.s.steady(now)), w.l.MayStamp())
}
