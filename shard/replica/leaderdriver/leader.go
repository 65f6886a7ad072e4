package leaderdriver

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
)

// Replica is the leader's part's view of its replica.
type Replica interface {
	View(fn func(*shard.Machine))
	Barrier(fn func(ok bool))
	// Submit proposes a command of the leader's own. [Tasks.Done] follows, unless it returns false.
	Submit(c shard.Command, id uint64) bool
	// RequestTick proposes a batch soon, even an empty one.
	RequestTick()
	// Send sends a message to another shard's leader. It may be lost.
	Send(to uint64, msg []byte)
	// Pong, Cut and Detach are those of the replica's sink.
	Pong(conn, ping uint64)
	Cut(conn uint64, reason string)
	Detach(conn uint64)
	// Heard is the last receive on a connection by the host's clock, 0 for an unknown one.
	Heard(conn uint64) time.Duration
	// PublishLogTime is called after each run, while this replica leads in a term.
	PublishLogTime(term, now, logTime uint64, runs bool)
	// SelfCheck is the time between two self-checks of the leader, in ms, by the nodes of m; nil:
	// by those seen last.
	SelfCheck(m *shard.Machine) uint64
	// Now is the host's clock in ms, and LeaderTime the leader's reading of such a time.
	Now() uint64
	LeaderTime(ms uint64) uint64
}

// Leader is the part around the leader's step machine.
type Leader struct {
	r       Replica
	t       *Tasks
	l       *leader.Leader
	term    uint64
	now     uint64 // ms, host's clock; read now and then only, since reading it is a system call
	remotes []uint64

	remoteChanges []remoteChange // of the tasks that run
}

var _ Part = (*Leader)(nil)

// NewLeader returns the part for a shard's replica. route is the route of [leader.Config]; nil: no
// other shard is known.
func NewLeader(id uint64, r Replica, t *Tasks, route func(tier uint8, bucket uint32) (shard, epoch uint64)) *Leader {
	if route == nil {
		route = func(uint8, uint32) (uint64, uint64) { return 0, 0 }
	}
	return &Leader{r: r, t: t, l: leader.New(leader.Config{Shard: id, Route: route, SelfCheck: r.SelfCheck(nil)})}
}

// Start implements Part.
func (d *Leader) Start(t Term) { d.t.start(t) }

// Stop implements Part.
func (d *Leader) Stop() { d.t.stop() }

// Next implements Part: the host ticks the step machine, by [Tasks.Tick].
func (d *Leader) Next() (in time.Duration, has bool) { return 0, false }

func (d *Leader) alarm() *Alarm { return &d.t.Alarm }

// Tick implements Part: it makes the calls that are queued.
func (d *Leader) Tick(bool) {
	t := d.t
	t.mu.Lock()
	list := t.queue
	t.queue = t.spare[:0]
	t.spare = nil
	d.remoteChanges, t.remotes, t.spareRemotes = t.remotes, t.spareRemotes[:0], nil
	t.sleeping = true // a task added from here on wakes it
	t.queuedMessages, t.ticking = 0, false
	t.busy = true
	t.mu.Unlock()

	for i := range list {
		if i%64 == 0 {
			d.now = d.r.LeaderTime(d.r.Now())
		}
		d.run(&list[i])
		if x := &list[i]; x.done != nil || i%64 == 63 {
			d.carryOut(d.l.Take())
			if x.done != nil {
				close(x.done)
			}
		}
	}
	d.carryOut(d.l.Take())
	d.publish()

	clear(list)
	t.mu.Lock()
	t.spare, t.spareRemotes = list[:0], d.remoteChanges
	t.busy = false
	t.mu.Unlock()
}

// Close implements Part: tasks that are queued are not done, and nobody waits for them.
func (d *Leader) Close() {
	d.l.Stop()
	d.carryOut(d.l.Take())
	t := d.t
	t.mu.Lock()
	t.ended = true
	list := t.queue
	t.queue = nil
	t.mu.Unlock()
	for i := range list {
		if c := list[i].done; c != nil {
			close(c)
		}
	}
}

func (d *Leader) run(x *task) {
	r, l, now := d.r, d.l, d.now
	switch x.kind {
	case taskStart:
		// The remote sessions are read a little after the entry that began this leadership. Later
		// changes are queued in order, so the leader ends up with the right list.
		d.term = x.epoch >> 16
		l.Start(r.LeaderTime(x.a), x.epoch, x.value, d.readRemotes())
	case taskStop:
		d.term = 0
		l.Stop()
	case taskAttached:
		conn := x.a
		if conn != 0 && r.Heard(conn) == 0 {
			conn = 0 // closed before its attach was applied; ConnClosed came before, or comes and does nothing
		}
		l.Attached(now, conn, x.b, x.epoch, x.value, x.text)
	case taskDetached:
		l.Detached(now, x.b, x.epoch, x.text)
	case taskEnded:
		l.Ended(now, x.b, x.how)
	case taskRemotes:
		for _, r := range d.remoteChanges[x.a:x.b] {
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
		l.ConnClosed(now, x.a, r.LeaderTime(x.value), protocol.Link(x.b))
	case taskPing:
		l.Ping(now, x.a, x.b)
	case taskProposalDone:
		l.Done(now, x.a, x.flag)
	case taskBarrierDone:
		r.View(func(m *shard.Machine) { l.BarrierDone(now, x.a, x.flag, (*state)(m)) })
	case taskRouteChanged:
		l.RouteChanged(now)
	case taskTransfer:
		l.Transfer(now, d.heard)
	case taskReceive:
		r.View(func(m *shard.Machine) { l.Receive(now, x.a, x.bytes, (*state)(m)) })
	case taskTick:
		var next, selfCheck uint64
		var has bool
		r.View(func(m *shard.Machine) {
			next, has = m.NextDeadline()
			selfCheck = r.SelfCheck(m)
		})
		l.SetSelfCheck(selfCheck)
		l.Tick(now, d.heard, next, has)
	case taskSkipTime:
		l.SkipTime(now, x.a)
	}
}

func (d *Leader) readRemotes() []uint64 {
	d.remotes = d.remotes[:0]
	d.r.View(func(m *shard.Machine) {
		m.Sessions().Remotes(func(session, _ uint64) bool {
			d.remotes = append(d.remotes, session)
			return true
		})
	})
	return d.remotes
}

func (d *Leader) heard(conn uint64) (at uint64, open bool) {
	last := d.r.Heard(conn)
	return d.r.LeaderTime(uint64(last / time.Millisecond)), last != 0
}

// carryOut carries out the leader's output, cuts first.
func (d *Leader) carryOut(out *leader.Ready) {
	for i := range out.Cut {
		if c := &out.Cut[i]; c.Reason == "" {
			d.r.Detach(c.Conn)
		} else {
			d.r.Cut(c.Conn, c.Reason)
		}
	}
	for i := range out.Pongs {
		d.r.Pong(out.Pongs[i].Conn, out.Pongs[i].Ping)
	}
	for i := range out.Commands {
		if c := &out.Commands[i]; !d.r.Submit(c.Command, c.ID) {
			d.t.Done(c.ID, false)
		}
	}
	for i := range out.Messages {
		d.r.Send(out.Messages[i].To, out.Messages[i].Bytes)
	}
	if n := out.Barrier; n != 0 {
		d.r.Barrier(func(ok bool) { d.t.add(task{kind: taskBarrierDone, a: n, flag: ok}) })
	}
	if out.Tick {
		d.publish()
		d.r.RequestTick()
	}
	if out.Compare {
		d.l.Holdings(d.r.LeaderTime(d.r.Now()), d.readRemotes())
		d.carryOut(d.l.Take())
	}
}

func (d *Leader) publish() {
	if d.term == 0 {
		return
	}
	now := d.r.Now()
	d.r.PublishLogTime(d.term, now, d.l.LogTime(d.r.LeaderTime(now)), d.l.LogTimeRuns())
}

// state is a machine as the leader's step machine reads it, under the machine's read lock.
type state shard.Machine

var _ leader.State = (*state)(nil)

func (s *state) machine() *shard.Machine { return (*shard.Machine)(s) }

// HomeBucket returns the epoch of the session's home bucket and whether it is ACTIVE here.
func (s *state) HomeBucket(session uint64) (epoch uint64, active bool) {
	m := s.machine()
	if tier, total := m.Tier(); total == 0 || tier != protocol.SessionTier(session) {
		return 0, false
	}
	return m.Bucket(protocol.SessionBucket(session))
}

// Session looks up a session at home here.
func (s *state) Session(session uint64) (view shard.SessionView, alive bool) {
	return s.machine().Sessions().Home(session)
}

// RemoteSession looks up a session at home elsewhere.
func (s *state) RemoteSession(session uint64) (view shard.RemoteSessionView, known bool) {
	return s.machine().Sessions().Remote(session)
}
