package replica

import (
	"context"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/lead"
)

// maxInbox bounds the messages of other leaders that wait here; more are dropped, and asked for again by their senders.
const maxInbox = 4096

// maxPatient is how many guests that came or went may wait for the next tick. The leader asks for them with its ticks only, so that waking it for each would
// make every lock of a session at home elsewhere cost a switch of goroutines for nothing.
const maxPatient = 4096

// dutyKind is a call of the leader's step machine that waits for its goroutine.
type dutyKind uint8

const (
	dutyBegin dutyKind = iota
	dutyEnd
	dutyAttached
	dutyBound
	dutyDetached
	dutyEnded
	dutyGuestHeld
	dutyGuestIdle
	dutyFrozen
	dutyActive
	dutyLeft
	dutyClosed
	dutyPing
	dutyDone
	dutyBarrier
	dutyRoutes
	dutyHandOver
	dutyReceive
	dutyTick
	dutyLeap
)

type duty struct {
	kind  dutyKind
	flag  bool
	a     uint64 // conn, time, note, barrier or shard
	b     uint64 // session or ping
	epoch uint64
	more  uint64 // timeout, last heard or log time
	text  string
	bytes []byte
	wake  chan<- struct{} // of a tick that somebody waits for
}

// duties is what the shard's leader does besides its log: a queue of calls, and the one goroutine that makes them. The events of the log enter it in log order,
// because the apply goroutine queues them; everything else enters as it comes.
type duties struct {
	s     *Shard
	wakeC chan struct{}

	mu      sync.Mutex
	queue   []duty
	spare   []duty
	inbox   int  // messages of other leaders in queue
	active  bool // between begin and end: events of the log are fed
	ended   bool // the goroutine is gone
	ticking bool // a tick is in queue
	busy    bool // it has taken the queue and is not done
	asleep  bool // the goroutine sleeps, and nobody has woken it yet
	skipped int  // ticks without a word to the goroutine, while this replica does not lead

	// The stamp of batches: log time at a moment, from which it moves on with the clock. Published at each step, read by the proposer.
	stampMu sync.Mutex
	stampOf uint64 // epoch it belongs to
	stampAt uint64 // ms, host's clock
	stampIs uint64 // log time then
	moving  bool
}

func (d *duties) init(s *Shard) {
	d.s = s
	d.wakeC = make(chan struct{}, 1)
	d.asleep = true
}

func (d *duties) put(x duty) {
	d.mu.Lock()
	if d.ended {
		d.mu.Unlock()
		if x.wake != nil {
			close(x.wake)
		}
		return
	}
	d.queue = append(d.queue, x)
	rouse := d.asleep
	d.asleep = false
	d.mu.Unlock()
	if rouse {
		d.wake()
	}
}

// nudge has what waits for the next tick done now.
func (d *duties) nudge() {
	d.mu.Lock()
	rouse := d.asleep && len(d.queue) > 0
	if rouse {
		d.asleep = false
	}
	d.mu.Unlock()
	if rouse {
		d.wake()
	}
}

func (d *duties) wake() {
	select {
	case d.wakeC <- struct{}{}:
	default:
	}
}

func (s *Shard) nowMS() uint64 { return uint64(s.clock.Now() / time.Millisecond) }

// begin is called in the step that applied this replica's epoch: what is fed afterwards belongs to later entries.
func (d *duties) begin(epoch, logTime uint64) {
	now := d.s.nowMS()
	d.s.barriers.lead.at.Store(0)
	d.stampMu.Lock()
	d.stampOf, d.stampAt, d.stampIs, d.moving = epoch>>16, now, logTime, true
	d.stampMu.Unlock()
	d.mu.Lock()
	d.active = true
	d.mu.Unlock()
	d.put(duty{kind: dutyBegin, a: now, epoch: epoch, more: logTime})
}

func (d *duties) end() {
	d.mu.Lock()
	d.active = false
	d.mu.Unlock()
	d.put(duty{kind: dutyEnd})
}

// done reports a command of the leader's own: applied, or never to be.
func (d *duties) done(note uint64, applied bool) {
	d.put(duty{kind: dutyDone, a: note, flag: applied})
}

// feed queues what the leader must know of one entry's events.
func (d *duties) feed(origins []Origin, ev *shard.Events) {
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
			d.queue = append(d.queue, duty{kind: dutyAttached, a: conn, b: e.Session, epoch: e.Epoch, more: e.Timeout, text: e.Text})
		case shard.EventSessionDetached:
			urgent = true
			d.queue = append(d.queue, duty{kind: dutyDetached, b: e.Session, epoch: e.Epoch, text: e.Text})
		case shard.EventSessionEnded:
			urgent = true
			d.queue = append(d.queue, duty{kind: dutyEnded, b: e.Session})
		case shard.EventRemoteHeld:
			d.queue = append(d.queue, duty{kind: dutyGuestHeld, b: e.Session})
		case shard.EventRemoteIdle:
			d.queue = append(d.queue, duty{kind: dutyGuestIdle, b: e.Session})
		case shard.EventBucketsFrozen:
			urgent = true
			d.queue = append(d.queue, duty{kind: dutyFrozen, a: uint64(e.First), b: uint64(e.Count)})
		case shard.EventBucketsActive:
			urgent = true
			d.queue = append(d.queue, duty{kind: dutyActive})
		case shard.EventBucketsLeft:
			d.queue = append(d.queue, duty{kind: dutyLeft, a: uint64(e.First), b: uint64(e.Count)})
		}
	}
	rouse := d.asleep && (urgent || len(d.queue) > maxPatient)
	if rouse {
		d.asleep = false
	}
	d.mu.Unlock()
	if rouse {
		d.wake()
	}
}

// Bound says that a session lives on a connection by an attach that was answered without the log. Attaches that went through the log are known already.
func (s *Shard) Bound(conn, session, epoch, timeout uint64) {
	s.duties.put(duty{kind: dutyBound, a: conn, b: session, epoch: epoch, more: timeout})
}

// Ping asks for a [Sink.Pong] behind a barrier that begins after this call. A newer ping of the connection replaces one that waits.
func (s *Shard) Ping(conn, ping uint64) {
	s.duties.put(duty{kind: dutyPing, a: conn, b: ping})
}

// ConnClosed says that a connection is closed, and when something was last heard on it by the host's clock. [ShardConfig.Heard] must not know the connection
// any more when this is called.
func (s *Shard) ConnClosed(conn uint64, lastHeard time.Duration) {
	s.duties.put(duty{kind: dutyClosed, a: conn, more: uint64(lastHeard / time.Millisecond)})
}

// RouteChanged says that [ShardConfig.Route] may answer differently now.
func (s *Shard) RouteChanged() { s.duties.put(duty{kind: dutyRoutes}) }

// ReceivePeer takes a message of another shard's leader; any bytes are safe. The slice is kept. It is dropped when too many wait, and when this replica does
// not lead.
func (s *Shard) ReceivePeer(from uint64, msg []byte) {
	d := &s.duties
	d.mu.Lock()
	if !d.active || d.inbox >= maxInbox || len(msg) > lead.MaxPeerMessage {
		d.mu.Unlock()
		s.counters.peerDropped.Add(1)
		return
	}
	d.inbox++
	d.mu.Unlock()
	d.put(duty{kind: dutyReceive, a: from, bytes: msg})
}

// HandOver has the log say that this replica's leadership is about to go to another one, and first
// what is left to the sessions that were not heard of lately. The leader that takes over then adds
// no grace period to what the others have. It returns when that is applied. An error says that it
// may not be in the log: then the change counts as unplanned.
func (s *Shard) HandOver(ctx context.Context) error {
	if !s.Leading() {
		return protocol.Errorf(protocol.StatusUnavailable, "shard %d is not led here; ask its leader", s.cfg.ID)
	}
	done := make(chan struct{})
	s.duties.put(duty{kind: dutyHandOver, wake: done})
	select {
	case <-done:
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.ProposeInternal(ctx, shard.Command{Kind: shard.CmdHandOver, Body: shard.HandOverBegins})
}

// keepOn takes a hand-over back.
func (s *Shard) keepOn() {
	s.line.submit(s, shard.Command{Kind: shard.CmdHandOver, Body: shard.HandOverCancelled}, Origin{}, func(error) {})
}

// followTicks is how many ticks a replica that does not lead leaves out: all it has to do is to
// look at the periods of its nodes, and a goroutine of each shard that wakes for nothing adds up.
const followTicks = 9

// tick lets the duties look at the clock. A tick that finds the last one still waiting is none.
func (s *Shard) tick(now time.Duration) {
	s.askRefresh(now)
	s.snapshotIfDue()
	d := &s.duties
	d.mu.Lock()
	none := d.ticking
	switch {
	case none:
	case d.active || d.skipped == 0:
		d.ticking, d.skipped = true, followTicks
	default:
		none = true
		d.skipped--
	}
	d.mu.Unlock()
	if !none {
		d.put(duty{kind: dutyTick})
	}
}

// startTick lets the goroutine look at the clock. Wait returns when what came of it is applied, within five seconds of real time. If nothing came of it, a wait that is not
// thorough returns at once.
func (s *Shard) startTick() (wait func(thorough bool)) {
	s.askRefresh(s.clock.Now())
	s.snapshotIfDue()
	done := make(chan struct{})
	s.duties.put(duty{kind: dutyTick, wake: done})
	return func(thorough bool) {
		<-done
		if thorough {
			s.settle(settleTime)
			return
		}
		for end := time.Now().Add(settleTime); !s.quiet() && time.Now().Before(end); time.Sleep(20 * time.Microsecond) {
			s.duties.nudge()
		}
	}
}

func (s *Shard) applies() uint64 { return s.counters.applied.Load() }

func (s *Shard) happened() uint64 { return s.counters.happened.Load() }

// due is how far ahead the next deadline is; 0 also where log time stands still, or is not known.
func (s *Shard) due() (in time.Duration, has bool) {
	s.mu.RLock()
	next, has := s.machine.NextDeadline()
	s.mu.RUnlock()
	now, moving := s.duties.moves()
	if !has && moving {
		return 0, false
	}
	if !moving || next <= now {
		return 0, true
	}
	return time.Duration(next-now) * time.Millisecond, true
}

// leap moves log time, and nothing else of what the leader goes by.
func (s *Shard) leap(d time.Duration) {
	s.duties.put(duty{kind: dutyLeap, a: uint64(d / time.Millisecond)})
}

// steady is a time of the host's clock, in ms, as the leader knows it: without what a [ManualClock]
// has left out.
func (s *Shard) steady(ms uint64) uint64 {
	if m, ok := s.clock.(*ManualClock); ok {
		return uint64(m.withoutLeaps(time.Duration(ms)*time.Millisecond) / time.Millisecond)
	}
	return ms
}

// quiet says that nothing is queued anywhere in this replica. What is handed on at this moment may be seen nowhere.
func (s *Shard) quiet() bool { return s.line.quiet() && s.duties.idle() && s.barriers.idle() }

// settle waits until nothing is queued anywhere in this replica, at most for the given time.
func (s *Shard) settle(most time.Duration) bool {
	end := time.Now().Add(most)
	for quiet := 0; time.Now().Before(end); {
		s.duties.nudge()
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

func (d *duties) idle() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ended || len(d.queue) == 0 && !d.busy
}

// LogTime is what a batch proposed now would be stamped with, 0 when this replica does not lead. The machine's own log time is that of the last entry, which in
// an idle shard is behind.
func (s *Shard) LogTime() uint64 {
	if !s.Leading() {
		return 0
	}
	return s.duties.stamp()
}

// stamp is the log time of a batch proposed now. It moves with the clock between the steps of the duties; when they are late, the process was paused, and it
// stands until they have looked at what that means.
func (d *duties) stamp() uint64 {
	now := d.s.nowMS()
	d.stampMu.Lock()
	defer d.stampMu.Unlock()
	if !d.moving || now < d.stampAt {
		return d.stampIs
	}
	return d.stampIs + min(now-d.stampAt, lead.StampAhead)
}

// moves is stamp, and whether log time moves.
func (d *duties) moves() (logTime uint64, moving bool) {
	logTime = d.stamp()
	d.stampMu.Lock()
	defer d.stampMu.Unlock()
	return logTime, d.moving && d.s.Leading()
}

func (d *duties) publish(term, now, logTime uint64, moving bool) {
	d.stampMu.Lock()
	defer d.stampMu.Unlock()
	if d.stampOf != term {
		return // a newer leadership has begun in the log
	}
	d.stampAt, d.stampIs, d.moving = now, logTime, moving
}
