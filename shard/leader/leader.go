// Package leader is the work of a shard's leader beside applying the log, as a pure step machine:
// liveness of sessions by connection, log time, ticks for due deadlines, the self-check, and the
// subscriptions that notify a shard when a remote session ends.
//
// Inputs are calls, time is an argument, outputs are data. The driver makes all calls of a [Leader]
// from one goroutine, and carries out what [Leader.Take] returns. Nothing here reads a clock,
// blocks, or starts a goroutine. Equal inputs give equal outputs.
//
// What the driver guarantees:
//
//   - It calls Start when the epoch of this leadership is applied here, before it feeds events of
//     later entries, and Stop as soon as the leadership is in doubt. A further take-over in the
//     same term is no new leadership and is not reported.
//   - It feeds the events of the log in order: Attached, Detached, Ended, RemoteHeld, RemoteIdle,
//     BucketsFrozen, BucketsActive, BucketsLeft. After the events of a batch it calls Done for the
//     leader's own commands in it. Before BucketsFrozen it notifies the clients that their sessions
//     are detached, on their connections, so that any later pong comes after that.
//   - A barrier asked for by Ready.Barrier begins after Take has returned, and ends with exactly
//     one BarrierDone. It succeeds only if a linearizable read of the epoch register returned the
//     leader's own epoch. A failed one is reported too: until then no other is asked for.
//   - It submits commands in order and reports the outcome of each by Done: applied, or never to be
//     applied. It reports an undetermined command only when it is determined.
//   - It calls Tick about every 100 ms, at the latest every 250 ms. A gap of more than [PauseGap]
//     between two calls counts as a pause of the process.
//   - now is monotonic, in ms, from the same clock for all calls and for the results of heard.
package leader

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// Limits and periods of the leader; times in ms.
const (
	PauseGap             = 1_000  // a longer gap between two calls counts as a pause of the process
	MaxExtrapolation     = 250    // how far a driver may extrapolate the newest LogTime; so much of a pause counts
	MinPauseDrain        = 200    // least time after a pause, and two ticks, before anything may expire
	ZeroTimeoutSilence   = 60_000 // silence after which a session with timeout 0 is detached
	MaxExpiries          = 1_000  // sessions that a command detaches or releases
	ExpiriesPerSec       = 5_000  // sessions detached or released per second
	MaxStampInterval     = 10_000 // between two stamps while a deadline is pending; a new leader loses at most so much
	MinStampInterval     = 500    // the same right after a change of leader; it grows from here
	StampIntervalDivisor = 8      // the stamp interval is at most this part of the leadership's age

	MaxNewPerTick  = 16  // new remote sessions between two ticks that are requested at once; others are delayed
	NewRemoteDelay = 500 // how long

	MaxMessage         = 64 << 10 // bytes
	MaxRequestSessions = 512      // sessions in a subscribe request
	MaxPendingRequests = 8        // unanswered requests of a subscription
	MaxQueuedSessions  = 64 << 10 // sessions in requests that wait for a barrier; more are dropped, and requested again
	MaxLookups         = 4 << 10  // sessions looked up after one barrier
	MaxUnacked         = 64 << 10 // updates kept for a subscriber; one with more is dropped, and subscribes again

	DefaultSelfCheck      = protocol.DefaultSelfCheckPeriod
	DefaultCompare        = 60_000
	DefaultBarrierTimeout = protocol.DefaultGracePeriod

	maxSegments       = 64     // of the log clock that are remembered
	maxNotifySessions = 512    // in one notification
	maxNotifyWindow   = 32     // unacknowledged notifications sent
	maxDescription    = 4_096  // bytes; more than the specification allows, for later versions
	maxRemoteUpdates  = 256    // attach epochs and descriptions proposed per Take
	minTickInterval   = 200    // MaxExpiries each, so ExpiriesPerSec
	subscriberTimeout = 60_000 // silence after which a subscriber is dropped
	unknownShard      = 0
)

// Route returns the shard that owns a bucket, and the bucket's epoch. Shard 0: unknown. It must not
// call the leader.
type Route func(tier uint8, bucket uint32) (shard, epoch uint64)

// Config of a leader. Zero values select the defaults.
type Config struct {
	Shard          uint64 // led by this leader
	Route          Route  // required
	SelfCheck      uint64 // ms between self-checks, and between heartbeats to home shards; default 1,000
	Compare        uint64 // ms between full comparisons of remote sessions; default 60,000
	BarrierTimeout uint64 // ms without a successful barrier before all connections are cut; default 10,000
}

// State is the shard's machine as the leader reads it. The machine must not apply entries during
// the call that gets the State.
type State interface {
	// HomeBucket returns the epoch of the session's home bucket in this shard, and whether the
	// bucket is ACTIVE here. It is false for a session of another tier.
	HomeBucket(session uint64) (epoch uint64, active bool)
	// Session looks up a session at home here. Alive is false if it is unknown, ended, or overdue
	// by log time.
	Session(session uint64) (view shard.SessionView, alive bool)
	// RemoteSession looks up what this shard knows of a session at home elsewhere.
	RemoteSession(session uint64) (view shard.RemoteSessionView, known bool)
}

// Stats are counters since New. The first five fields are gauges.
type Stats struct {
	RemoteSessions, Unsubscribed, Subscribers, Sessions, Connections int

	Pauses             uint64 // of the process
	TimedOut           uint64 // connections cut after silence
	Detaches           uint64 // sessions whose detach was proposed
	RemotesEnded       uint64 // remote sessions whose release was proposed
	Queried            uint64 // remote sessions in subscribe requests
	LostSubscriptions  uint64 // subscriptions that began again with the whole list
	DroppedSubscribers uint64 // that did not acknowledge
	Dropped            uint64 // requests and heartbeats over a limit
	Malformed          uint64 // messages of other leaders
	FailedBarriers     uint64
	Retried            uint64 // commands that were not applied and proposed again
}

// Leader is the step machine of one shard, over all its leaderships. One goroutine uses it. Each
// call notes the time and hands on to the parts that it concerns.
type Leader struct {
	leadership
	taken *Ready

	pause            pause
	unconfirmedSince uint64 // all connections are cut BarrierTimeout after this
	ticks            ticks
	nextCompare      uint64 // when the remote sessions are compared next

	barrier     barrierState
	proposals   proposals
	liveness    liveness
	remotes     remoteTable
	subscribers subscriberTable
}

// New returns a leader without a leadership. Calls before Start are ignored, except that a
// connection with an attach is cut.
func New(cfg Config) *Leader {
	if cfg.SelfCheck == 0 {
		cfg.SelfCheck = DefaultSelfCheck
	}
	if cfg.Compare == 0 {
		cfg.Compare = DefaultCompare
	}
	if cfg.BarrierTimeout == 0 {
		cfg.BarrierTimeout = DefaultBarrierTimeout
	}
	return &Leader{leadership: leadership{cfg: cfg, ready: new(Ready)}, taken: new(Ready)}
}

// Start begins a leadership when its epoch has been applied here, at that log time. Remotes are the
// sessions that hold or wait for something here and have no ACTIVE home bucket here. An earlier
// leadership is stopped first.
func (l *Leader) Start(now, epoch, logTime uint64, remotes []uint64) {
	l.Stop()
	// Reset everything except what the driver may still refer to, or has not taken.
	*l = Leader{
		leadership:       leadership{cfg: l.cfg, epoch: epoch, stats: l.stats, ready: l.ready},
		taken:            l.taken,
		unconfirmedSince: now,
		ticks:            ticks{since: now, at: now},
		nextCompare:      now + l.cfg.Compare,
		barrier:          barrierState{number: l.barrier.number, wanted: true},
		proposals:        newProposals(&l.leadership, l.proposals.lastID, now),
		liveness:         newLiveness(&l.leadership),
		remotes:          newRemoteTable(&l.leadership),
		subscribers:      newSubscriberTable(&l.leadership),
	}
	l.clock.start(now, logTime)
	l.remotes.heldAtStart(remotes)
}

// Stop ends the leadership. It detaches the sessions at home here from every connection: pongs of a
// later leadership would renew sessions that it does not know. Other work that was not taken is
// dropped.
func (l *Leader) Stop() {
	if l.epoch == 0 {
		return
	}
	*l.ready = Ready{Cut: l.ready.Cut}
	l.liveness.takeOff()
	l.epoch = 0
	l.barrier.inFlight = false
}

// Take returns the work since the last Take. The result is valid until the next Take; message and
// body bytes may be kept.
func (l *Leader) Take() *Ready {
	if l.epoch != 0 {
		l.flushCommands()
		l.subscribers.flush()
		l.beginBarrier()
		l.liveness.dropPongs()
	}
	r := l.ready
	l.taken.reset()
	l.ready, l.taken = l.taken, r
	return r
}

func (l *Leader) flushCommands() {
	if !l.proposals.refill() {
		return
	}
	if !l.clock.paused {
		l.liveness.flushDetaches(&l.proposals)
	}
	l.remotes.flushEnded(&l.proposals)
	l.remotes.flushUpdates(&l.proposals)
}

// SetSelfCheck sets the time between self-checks in ms: the least of the shard's nodes.
func (l *Leader) SetSelfCheck(ms uint64) {
	if ms > 0 {
		l.cfg.SelfCheck = ms
	}
}

// Leading reports whether a leadership was started and not stopped.
func (l *Leader) Leading() bool { return l.epoch != 0 }

// LogTime is the stamp for a batch that is proposed now; 0 without a leadership. It stands still
// during a pause, and until the sockets were read after it.
func (l *Leader) LogTime(now uint64) uint64 {
	if !l.enter(now) {
		return 0
	}
	return l.clock.now()
}

// LogTimeRuns is false after a pause, until the leadership is confirmed: no tick is proposed, and
// client batches keep the same log time. Call LogTime first: it detects a pause.
func (l *Leader) LogTimeRuns() bool { return l.epoch != 0 && !l.clock.paused }

// enter begins a call: it notes the time, and reports whether a leadership is under way. After a
// pause nothing expires until a later barrier has confirmed the leadership, and what clients sent
// meanwhile has been read from the sockets.
func (l *Leader) enter(now uint64) (leading bool) {
	if l.epoch == 0 {
		return false
	}
	if l.clock.observe(now) {
		l.stats.Pauses++
		l.pause = pause{barrier: l.barrier.number, since: l.clock.seen}
		l.barrier.wanted, l.barrier.backoff = true, false
		l.unconfirmedSince = l.clock.seen
	}
	return true
}

// SkipTime moves log time forward by some ms while the monotonic time stays. A test skips time in
// which nothing is due. The next tick logs it if a deadline is pending. Production drivers do not
// call it.
func (l *Leader) SkipTime(now, by uint64) {
	if l.enter(now) {
		l.clock.skip(by)
		l.ticks.skipped = true
	}
}

// Heard returns when something was last received on a connection, and whether it is open.
type Heard func(conn uint64) (at uint64, open bool)

// Tick does what is due. NextDeadline is the log time at which the machine has something to expire.
func (l *Leader) Tick(now uint64, heard Heard, nextDeadline uint64, hasDeadline bool) {
	if !l.enter(now) {
		return
	}
	now = l.clock.seen
	l.proposals.backoff, l.barrier.backoff = false, false
	if l.clock.paused {
		if l.pause.drained(now) {
			l.clock.resume()
		} else if !l.pause.confirmed && !(l.barrier.inFlight && l.barrier.number > l.pause.barrier) {
			l.barrier.wanted = true
		}
	}
	if l.barrier.proved {
		l.unconfirmedSince = max(l.unconfirmedSince, l.barrier.lastProof)
	}
	if now-l.unconfirmedSince > l.cfg.BarrierTimeout {
		l.liveness.cutAll(heard, "the shard's leadership is not confirmed; connect to its master")
	}
	if !l.clock.paused {
		l.liveness.checkSilence(heard)
		if hasDeadline && l.ticks.due(&l.clock, nextDeadline) {
			l.ready.Tick = true
		}
	}
	if !l.barrier.inFlight && now-l.barrier.began >= l.cfg.SelfCheck {
		l.barrier.wanted = true
	}
	if now >= l.nextCompare {
		l.nextCompare = now + l.cfg.Compare
		l.ready.Compare = true
	}
	l.remotes.tick()
	l.subscribers.expire()
}

// HandOver prepares a leadership transfer. Connections with a missing ping are cut now, so that the
// log has the remaining time of their sessions; the new leader gives all others their whole
// timeout. Take returns the detaches. The driver proposes a CmdHandOver after them, and cancels it
// if the leadership stays. Nothing else changes until another leader takes over.
//
// More sessions than usual are detached at once; those over ExpiriesPerSec count as heard.
func (l *Leader) HandOver(now uint64, heard Heard) {
	if !l.enter(now) || l.clock.paused {
		return // what clients sent during a pause is still in the sockets
	}
	l.liveness.cutMissingPings(heard)
	l.proposals.limiter.tokens = ExpiriesPerSec
}

// Done reports the outcome of a command: applied, after the events of its batch were fed, or never
// to be applied.
func (l *Leader) Done(now, id uint64, applied bool) {
	if l.epoch == 0 {
		return
	}
	p, ok := l.proposals.done(id, applied)
	if !ok {
		return
	}
	l.enter(now)
	l.liveness.detachesDone(id, p.sessions, applied)
	l.remotes.releasesDone(id, p.remotes, applied)
	if p.update != nil {
		l.remotes.updateDone(p.update, applied)
	}
}

// Stats returns the counters.
func (l *Leader) Stats() Stats {
	s := l.stats
	s.Sessions, s.Connections = l.liveness.sessions.Len(), len(l.liveness.conns)
	s.RemoteSessions, s.Unsubscribed = l.remotes.count()
	s.Subscribers = l.subscribers.count()
	return s
}
