package replica

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
	"github.com/signalbox-dev/signalbox/shard/replica/proposal"
)

// leaderLoop is the state of the goroutine that drives the leader's step machine.
type leaderLoop struct {
	s       *Shard
	d       *taskQueue
	l       *leader.Leader
	term    uint64
	now     uint64 // ms, host's clock; read now and then only, since reading it is a system call
	remotes []uint64

	remoteChanges []remoteChange // of the tasks that run
}

func newLeaderLoop(s *Shard) *leaderLoop {
	route := s.cfg.Route
	if route == nil {
		route = func(uint8, uint32) (uint64, uint64) { return 0, 0 }
	}
	return &leaderLoop{s: s, d: &s.tasks, l: leader.New(leader.Config{
		Shard: s.cfg.ID, Route: route, SelfCheck: uint64(s.barriers.periods.leader() / time.Millisecond),
	})}
}

func (w *leaderLoop) loop() {
	s, d := w.s, w.d
	for {
		select {
		case <-d.Wakeup:
		case <-s.stopC:
			w.l.Stop()
			w.carryOut(w.l.Take())
			d.mu.Lock()
			d.ended = true
			list := d.queue
			d.queue = nil
			d.mu.Unlock()
			for i := range list {
				if c := list[i].done; c != nil {
					close(c)
				}
			}
			return
		}
		d.mu.Lock()
		list := d.queue
		d.queue = d.spare[:0]
		d.spare = nil
		w.remoteChanges, d.remotes, d.spareRemotes = d.remotes, d.spareRemotes[:0], nil
		d.sleeping = true // a task added from here on wakes it
		d.queuedMessages, d.ticking = 0, false
		d.busy = true
		d.mu.Unlock()

		for i := range list {
			if i%64 == 0 {
				w.now = withoutSkips(s.clock, millis(s.clock))
			}
			w.run(&list[i])
			if x := &list[i]; x.done != nil || i%64 == 63 {
				w.carryOut(w.l.Take())
				if x.done != nil {
					close(x.done)
				}
			}
		}
		w.carryOut(w.l.Take())
		w.stamp()

		clear(list)
		d.mu.Lock()
		d.spare, d.spareRemotes = list[:0], w.remoteChanges
		d.busy = false
		d.mu.Unlock()
	}
}

func (w *leaderLoop) run(x *leaderTask) {
	s, l, now := w.s, w.l, w.now
	switch x.kind {
	case taskStart:
		// The remote sessions are read a little after the entry that began this leadership. Later
		// changes are queued in order, so the leader ends up with the right list.
		w.term = x.epoch >> 16
		l.Start(withoutSkips(s.clock, x.a), x.epoch, x.value, w.readRemotes())
	case taskStop:
		w.term = 0
		l.Stop()
	case taskAttached:
		conn := x.a
		if conn != 0 && w.lastHeard(conn) == 0 {
			conn = 0 // closed before its attach was applied; ConnClosed came before, or comes and does nothing
		}
		l.Attached(now, conn, x.b, x.epoch, x.value, x.text)
	case taskDetached:
		l.Detached(now, x.b, x.epoch, x.text)
	case taskEnded:
		l.Ended(now, x.b)
	case taskRemotes:
		for _, r := range w.remoteChanges[x.a:x.b] {
			if r.held {
				l.RemoteHeld(now, r.session)
			} else {
				l.RemoteIdle(now, r.session)
			}
		}
	case taskFrozen:
		l.BucketsFrozen(now, uint32(x.a), uint32(x.b))
	case taskActive:
		l.BucketsActive(now)
	case taskLeft:
		l.BucketsLeft(now, uint32(x.a), uint32(x.b))
	case taskConnClosed:
		l.ConnClosed(now, x.a, withoutSkips(s.clock, x.value))
	case taskPing:
		l.Ping(now, x.a, x.b)
	case taskProposalDone:
		l.Done(now, x.a, x.flag)
	case taskBarrierDone:
		s.View(func(m *shard.Machine) { l.BarrierDone(now, x.a, x.flag, (*leadState)(m)) })
	case taskRouteChanged:
		l.RouteChanged(now)
	case taskTransfer:
		l.Transfer(now, w.heard)
	case taskReceive:
		s.View(func(m *shard.Machine) { l.Receive(now, x.a, x.bytes, (*leadState)(m)) })
	case taskTick:
		var next uint64
		var has bool
		s.View(func(m *shard.Machine) {
			next, has = m.NextDeadline()
			s.barriers.periods.selfCheck.Store(m.SelfCheck())
			s.barriers.periods.grace.Store(m.Grace())
		})
		l.SetSelfCheck(uint64(s.barriers.periods.leader() / time.Millisecond))
		l.Tick(now, w.heard, next, has)
	case taskSkipTime:
		l.SkipTime(now, x.a)
	}
}

func (w *leaderLoop) readRemotes() []uint64 {
	w.remotes = w.remotes[:0]
	w.s.View(func(m *shard.Machine) {
		m.Sessions().Remotes(func(session, _ uint64) bool {
			w.remotes = append(w.remotes, session)
			return true
		})
	})
	return w.remotes
}

// lastHeard is the last receive on a connection by the host's clock, 0 for an unknown one.
func (w *leaderLoop) lastHeard(conn uint64) time.Duration {
	if w.s.cfg.Heard == nil {
		return 0
	}
	return w.s.cfg.Heard(conn)
}

func (w *leaderLoop) heard(conn uint64) (at uint64, open bool) {
	d := w.lastHeard(conn)
	return withoutSkips(w.s.clock, uint64(d/time.Millisecond)), d != 0
}

// carryOut does what the leader wants done, cuts first.
func (w *leaderLoop) carryOut(r *leader.Ready) {
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
		if s.proposals.SubmitInternal(c.Command, proposal.Waiter{Task: c.ID}) != protocol.StatusOK {
			w.d.done(c.ID, false)
		}
	}
	if s.cfg.Messages != nil {
		for i := range r.Messages {
			s.cfg.Messages.Send(r.Messages[i].To, s.cfg.ID, r.Messages[i].Bytes)
		}
	}
	if r.Barrier != 0 {
		n := r.Barrier
		s.Barrier(func(ok bool) { w.d.add(leaderTask{kind: taskBarrierDone, a: n, flag: ok}) })
	}
	if r.Tick {
		w.stamp()
		s.proposals.RequestTick()
	}
	if r.Compare {
		w.l.Holdings(withoutSkips(s.clock, millis(s.clock)), w.readRemotes())
		w.carryOut(w.l.Take())
	}
}

func (w *leaderLoop) stamp() {
	if w.term == 0 {
		return
	}
	now := millis(w.s.clock)
	w.s.logTime.publish(w.term, now, w.l.LogTime(withoutSkips(w.s.clock, now)), w.l.LogTimeRuns())
}
