package replica

import (
	"context"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
)

// maxQueuedMessages bounds the waiting messages of other leaders. More are dropped, and repeated by
// their senders.
const maxQueuedMessages = 4096

// maxDeferredTasks is how many remote sessions that came or went may wait for the next tick. The
// leader requests them only with its ticks, so waking its goroutine for each would cost a switch of
// goroutines per lock for nothing.
const maxDeferredTasks = 4096

// taskKind is a call of the leader's step machine.
type taskKind uint8

const (
	taskStart taskKind = iota
	taskStop
	taskAttached
	taskAttachedUnlogged
	taskDetached
	taskEnded
	taskRemoteHeld
	taskRemoteIdle
	taskFrozen
	taskActive
	taskLeft
	taskConnClosed
	taskPing
	taskProposalDone
	taskBarrierDone
	taskRouteChanged
	taskHandOver
	taskReceive
	taskTick
	taskSkipTime
)

type leaderTask struct {
	kind  taskKind
	flag  bool
	a     uint64 // conn, time, command id, barrier or shard
	b     uint64 // session or ping
	epoch uint64
	value uint64 // timeout, last receive or log time
	text  string
	bytes []byte
	done  chan<- struct{} // of a tick with a waiter
}

// taskQueue is the queue of calls to the leader's step machine, which its goroutine makes. The
// apply goroutine adds the events of the log, in log order; everything else is added as it comes.
type taskQueue struct {
	s      *Shard
	wakeup chan struct{}

	mu             sync.Mutex
	queue          []leaderTask
	spare          []leaderTask
	queuedMessages int  // messages of other leaders in queue
	active         bool // between start and stop: events of the log are added
	ended          bool // the goroutine has ended
	ticking        bool // a tick is in queue
	busy           bool // it has taken the queue and is not done
	sleeping       bool // the goroutine sleeps, and was not woken yet
	skippedTicks   int  // ticks without waking the goroutine, while this replica does not lead

	// The stamp of batches: a log time from which the proposer extrapolates with the clock.
	stampMu      sync.Mutex
	stampTerm    uint64 // of the leadership
	stampTime    uint64 // ms, host's clock
	stampLogTime uint64 // at stampTime
	stampRuns    bool
}

func (d *taskQueue) init(s *Shard) {
	d.s = s
	d.wakeup = make(chan struct{}, 1)
	d.sleeping = true
}

func (d *taskQueue) add(x leaderTask) {
	d.mu.Lock()
	if d.ended {
		d.mu.Unlock()
		if x.done != nil {
			close(x.done)
		}
		return
	}
	d.queue = append(d.queue, x)
	wake := d.sleeping
	d.sleeping = false
	d.mu.Unlock()
	if wake {
		d.wake()
	}
}

// wakeIfQueued runs deferred tasks now.
func (d *taskQueue) wakeIfQueued() {
	d.mu.Lock()
	wake := d.sleeping && len(d.queue) > 0
	if wake {
		d.sleeping = false
	}
	d.mu.Unlock()
	if wake {
		d.wake()
	}
}

func (d *taskQueue) wake() {
	select {
	case d.wakeup <- struct{}{}:
	default:
	}
}

func (s *Shard) nowMS() uint64 { return uint64(s.clock.Now() / time.Millisecond) }

// start is called in the step that applied this replica's epoch: later events belong to later
// entries.
func (d *taskQueue) start(epoch, logTime uint64) {
	now := d.s.nowMS()
	d.s.barriers.lastProof.at.Store(0)
	d.stampMu.Lock()
	d.stampTerm, d.stampTime, d.stampLogTime, d.stampRuns = epoch>>16, now, logTime, true
	d.stampMu.Unlock()
	d.mu.Lock()
	d.active = true
	d.mu.Unlock()
	d.add(leaderTask{kind: taskStart, a: now, epoch: epoch, value: logTime})
	d.s.members.lead(epoch >> 16)
}

func (d *taskQueue) stop() {
	d.mu.Lock()
	d.active = false
	d.mu.Unlock()
	d.add(leaderTask{kind: taskStop})
	d.s.members.lead(0)
}

// done reports a command of the leader's own: applied, or never to be.
func (d *taskQueue) done(id uint64, applied bool) {
	d.add(leaderTask{kind: taskProposalDone, a: id, flag: applied})
}

// addEvents adds what the leader must know of an entry's events.
func (d *taskQueue) addEvents(origins []Origin, ev *shard.Events) {
	d.mu.Lock()
	if !d.active || d.ended {
		d.mu.Unlock()
		return
	}
	urgent := false
	for i := range ev.List {
		e := &ev.List[i]
		switch e.Kind {
		case shard.EventSessionAttached:
			var conn uint64
			if e.Command >= 0 && e.Command < len(origins) {
				conn = origins[e.Command].Conn
			}
			urgent = true
			d.queue = append(d.queue, leaderTask{kind: taskAttached, a: conn, b: e.Session, epoch: e.Epoch, value: e.Timeout, text: e.Text})
		case shard.EventSessionDetached:
			urgent = true
			d.queue = append(d.queue, leaderTask{kind: taskDetached, b: e.Session, epoch: e.Epoch, text: e.Text})
		case shard.EventSessionEnded:
			urgent = true
			d.queue = append(d.queue, leaderTask{kind: taskEnded, b: e.Session})
		case shard.EventRemoteHeld:
			d.queue = append(d.queue, leaderTask{kind: taskRemoteHeld, b: e.Session})
		case shard.EventRemoteIdle:
			d.queue = append(d.queue, leaderTask{kind: taskRemoteIdle, b: e.Session})
		case shard.EventBucketsFrozen:
			urgent = true
			d.queue = append(d.queue, leaderTask{kind: taskFrozen, a: uint64(e.First), b: uint64(e.Count)})
		case shard.EventBucketsActive:
			urgent = true
			d.queue = append(d.queue, leaderTask{kind: taskActive})
		case shard.EventBucketsLeft:
			d.queue = append(d.queue, leaderTask{kind: taskLeft, a: uint64(e.First), b: uint64(e.Count)})
		}
	}
	wake := d.sleeping && (urgent || len(d.queue) > maxDeferredTasks)
	if wake {
		d.sleeping = false
	}
	d.mu.Unlock()
	if wake {
		d.wake()
	}
}

// AttachedUnlogged reports an attach that was answered before it was logged. The leader learns of
// logged attaches by itself.
func (s *Shard) AttachedUnlogged(conn, session, epoch, timeout uint64) {
	s.tasks.add(leaderTask{kind: taskAttachedUnlogged, a: conn, b: session, epoch: epoch, value: timeout})
}

// Ping asks for a [Sink.Pong] behind a barrier that begins after this call. A newer ping of the
// connection replaces a waiting one.
func (s *Shard) Ping(conn, ping uint64) {
	s.tasks.add(leaderTask{kind: taskPing, a: conn, b: ping})
}

// ConnClosed reports a closed connection and its last receive by the host's clock.
// [ShardConfig.Heard] must not know the connection any more.
func (s *Shard) ConnClosed(conn uint64, lastHeard time.Duration) {
	s.tasks.add(leaderTask{kind: taskConnClosed, a: conn, value: uint64(lastHeard / time.Millisecond)})
}

// RouteChanged must be called when [ShardConfig.Route] may answer differently.
func (s *Shard) RouteChanged() { s.tasks.add(leaderTask{kind: taskRouteChanged}) }

// ReceiveMessage takes a message of another shard's leader, keeps the slice, and does not wait. It
// drops the message if too many wait or this replica does not lead. Over says that it was dropped
// over a limit.
func (s *Shard) ReceiveMessage(from uint64, msg []byte) (over bool) {
	d := &s.tasks
	d.mu.Lock()
	over = d.active && (d.queuedMessages >= maxQueuedMessages || len(msg) > leader.MaxMessage)
	if !d.active || over {
		d.mu.Unlock()
		s.counters.messagesDropped.Add(1)
		return over
	}
	d.queuedMessages++
	d.mu.Unlock()
	d.add(leaderTask{kind: taskReceive, a: from, bytes: msg})
	return false
}

// HandOver prepares for a leadership transfer: it logs the remaining time of sessions that were not
// heard lately, and then a CmdHandOver. The next leader then adds no grace period. It returns when
// that is applied. After an error the change of leader may count as unplanned.
func (s *Shard) HandOver(ctx context.Context) error {
	if !s.Leading() {
		return protocol.Errorf(protocol.StatusUnavailable, "shard %d is not led here; ask its leader", s.cfg.ID)
	}
	done := make(chan struct{})
	s.tasks.add(leaderTask{kind: taskHandOver, done: done})
	select {
	case <-done:
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.ProposeInternal(ctx, shard.Command{Kind: shard.CmdHandOver, Body: shard.HandOverBegins})
}

// cancelHandOver logs that the leadership stays.
func (s *Shard) cancelHandOver() {
	cmd := shard.Command{Kind: shard.CmdHandOver, Body: shard.HandOverCancelled}
	s.proposals.submitInternal(cmd, internalWaiter{fn: func(error) {}})
}

// skippedFollowerTicks is how many ticks a replica skips that does not lead. It only reads the
// periods of its nodes, and a wake-up of each shard's goroutine for nothing adds up.
const skippedFollowerTicks = 9

// tick wakes the leader's goroutine, unless the last tick still waits.
func (s *Shard) tick(now time.Duration) {
	s.refreshIfDue(now)
	s.snapshotIfDue()
	d := &s.tasks
	d.mu.Lock()
	none := d.ticking
	switch {
	case none:
	case d.active || d.skippedTicks == 0:
		d.ticking, d.skippedTicks = true, skippedFollowerTicks
	default:
		none = true
		d.skippedTicks--
	}
	d.mu.Unlock()
	if !none {
		d.add(leaderTask{kind: taskTick})
	}
}

// startTick wakes the leader's goroutine. Wait returns when the consequences are applied, within
// five seconds of real time; if there are none and it is not thorough, at once.
func (s *Shard) startTick() (wait func(thorough bool)) {
	s.refreshIfDue(s.clock.Now())
	s.snapshotIfDue()
	done := make(chan struct{})
	s.tasks.add(leaderTask{kind: taskTick, done: done})
	return func(thorough bool) {
		<-done
		if thorough {
			s.awaitQuiet(quietTimeout)
			return
		}
		for end := time.Now().Add(quietTimeout); !s.quiet() && time.Now().Before(end); time.Sleep(20 * time.Microsecond) {
			s.tasks.wakeIfQueued()
		}
	}
}

func (s *Shard) appliedEntries() uint64 { return s.counters.applied.Load() }

func (s *Shard) eventEntries() uint64 { return s.counters.eventEntries.Load() }

// due is the time until the next deadline; 0 also if log time is paused or unknown.
func (s *Shard) due() (in time.Duration, has bool) {
	s.mu.RLock()
	next, has := s.machine.NextDeadline()
	s.mu.RUnlock()
	now, moving := s.tasks.logTimeRuns()
	if !has && moving {
		return 0, false
	}
	if !moving || next <= now {
		return 0, true
	}
	return time.Duration(next-now) * time.Millisecond, true
}

// skipTime moves log time, and nothing else that the leader uses.
func (s *Shard) skipTime(d time.Duration) {
	s.tasks.add(leaderTask{kind: taskSkipTime, a: uint64(d / time.Millisecond)})
}

// withoutSkips converts a time of the host's clock, in ms, to the leader's: without the skips of a
// [ManualClock].
func (s *Shard) withoutSkips(ms uint64) uint64 {
	if m, ok := s.clock.(*ManualClock); ok {
		return uint64(m.withoutSkips(time.Duration(ms)*time.Millisecond) / time.Millisecond)
	}
	return ms
}

// quiet reports whether nothing is queued in this replica. It may miss what is being handed on at
// this moment.
func (s *Shard) quiet() bool { return s.proposals.empty() && s.tasks.idle() && s.barriers.empty() }

// awaitQuiet waits until nothing is queued in this replica.
func (s *Shard) awaitQuiet(most time.Duration) bool {
	end := time.Now().Add(most)
	for quiet := 0; time.Now().Before(end); {
		s.tasks.wakeIfQueued()
		if s.quiet() {
			if quiet++; quiet == 2 {
				return true
			}
		} else {
			quiet = 0
		}
		time.Sleep(200 * time.Microsecond)
	}
	return false
}

func (d *taskQueue) idle() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ended || len(d.queue) == 0 && !d.busy
}

// LogTime is the stamp of a batch proposed now, 0 if this replica does not lead. The machine's log
// time is that of the last entry, which is older in an idle shard.
func (s *Shard) LogTime() uint64 {
	if !s.Leading() {
		return 0
	}
	return s.tasks.stamp()
}

// stamp is the log time of a batch proposed now. It advances with the clock between two runs of the
// leader's goroutine, by at most leader.MaxExtrapolation: if that goroutine is late, the process
// was paused, and the leader decides what counts.
//
// It reads the clock itself: a deadline that begins with a command must not begin before the leader
// heard the client, so the stamp is never older than a command of its batch.
func (d *taskQueue) stamp() uint64 {
	now := d.s.nowMS()
	d.stampMu.Lock()
	defer d.stampMu.Unlock()
	if !d.stampRuns || now < d.stampTime {
		return d.stampLogTime
	}
	return d.stampLogTime + min(now-d.stampTime, leader.MaxExtrapolation)
}

// logTimeRuns returns the stamp, and whether it advances.
func (d *taskQueue) logTimeRuns() (logTime uint64, moving bool) {
	logTime = d.stamp()
	d.stampMu.Lock()
	defer d.stampMu.Unlock()
	return logTime, d.stampRuns && d.s.Leading()
}

func (d *taskQueue) publish(term, now, logTime uint64, moving bool) {
	d.stampMu.Lock()
	defer d.stampMu.Unlock()
	if d.stampTerm != term {
		return // a newer leadership has begun in the log
	}
	d.stampTime, d.stampLogTime, d.stampRuns = now, logTime, moving
}
