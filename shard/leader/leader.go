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
	"cmp"
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader/idset"
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

// Command is a command to propose. Its outcome is reported by [Leader.Done] with the ID.
type Command struct {
	shard.Command
	ID uint64
}

// Pong answers a ping. The driver sends it on the connection with the shard's id.
type Pong struct{ Conn, Ping uint64 }

// Message is a message to the leader of another shard, or of the same one. It may be lost.
type Message struct {
	To    uint64
	Bytes []byte
}

// Cut takes a connection away from this shard. No pong of this shard may be sent on it any more,
// unless Reason is empty and the client was notified that its sessions are detached.
type Cut struct {
	Conn   uint64
	Reason string // why to close the connection; empty: keep it open without its sessions at home here
}

// Ready is the work that the leader wants done, in this order: cuts first.
type Ready struct {
	Cut      []Cut
	Pongs    []Pong
	Commands []Command
	Messages []Message
	Barrier  uint64 // number of the barrier to begin; 0: none
	Tick     bool   // propose a batch, even an empty one, to log the time
	Compare  bool   // call Holdings
}

func (r *Ready) reset() {
	clear(r.Cut)
	clear(r.Pongs)
	clear(r.Commands)
	clear(r.Messages)
	*r = Ready{Cut: r.Cut[:0], Pongs: r.Pongs[:0], Commands: r.Commands[:0], Messages: r.Messages[:0]}
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

// Leader is the step machine of one shard, over all its leaderships. One goroutine uses it.
type Leader struct {
	cfg   Config
	epoch uint64 // of this leadership; 0: none
	clock clock
	stats Stats

	ready, taken *Ready

	// after a pause
	pauseBarrier     uint64 // a barrier with a higher number confirms the leadership
	pauseSince       uint64
	pauseTicks       int
	confirmed        bool
	unconfirmedSince uint64 // all connections are cut BarrierTimeout after this

	// ticks
	leaderSince uint64 // the leadership began
	tickAt      uint64 // of the last tick
	tickStamp   uint64 // log time of the last tick
	nextCompare uint64 // when the remote sessions are compared next
	ticked      bool
	skipped     bool // SkipTime was called since the last tick

	// barriers
	barrier                               barrierState
	pingsWaiting, pingsInFlight           []*conn
	requestsWaiting, requestsInFlight     []pendingRequest
	heartbeatsWaiting, heartbeatsInFlight []pendingHeartbeat
	queuedSessions                        int // entries in requestsWaiting and requestsInFlight

	// liveness
	conns       map[uint64]*conn
	sessions    idset.Table[*session]
	checks      checks
	detachQueue []*session

	// proposals
	lastID        uint64 // of a command; numbers continue across leaderships
	inFlight      map[uint64]proposal
	limiter       rateLimiter
	backoff       bool // a command was not applied: propose again after the next tick
	remoteUpdates []*shard.RemoteUpdateBody

	// remote sessions
	remotes           map[uint64]*remoteSession
	newRemotes        int // since the last tick
	delayed           remoteList
	retry             remoteList
	endedRemotes      remoteList
	subscriptions     map[uint64]*subscription
	subscriptionOrder []*subscription // by shard id
	lastAttempt       uint64
	lastRequest       uint64

	// subscribers: the leaders of shards that hold something for sessions at home here
	subscribers     map[uint64]*subscriber
	subscriberOrder []*subscriber // by shard id
	subscribersOf   map[uint64][]*subscriber
	notifyQueue     []*subscriber
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
	return &Leader{cfg: cfg, ready: new(Ready), taken: new(Ready)}
}

// Start begins a leadership when its epoch has been applied here, at that log time. Guests are the
// sessions that hold or wait for something here and have no ACTIVE home bucket here. An earlier
// leadership is stopped first.
func (l *Leader) Start(now, epoch, logTime uint64, remotes []uint64) {
	l.Stop()
	// Reset everything except what the driver may still refer to, or has not taken.
	*l = Leader{cfg: l.cfg, stats: l.stats, ready: l.ready, taken: l.taken,
		barrier: barrierState{number: l.barrier.number}, lastID: l.lastID}
	l.epoch = epoch
	l.clock.start(now, logTime)
	l.leaderSince, l.unconfirmedSince, l.tickAt, l.limiter = now, now, now, rateLimiter{MaxExpiries, now}
	l.nextCompare = now + l.cfg.Compare
	l.barrier.wanted = true
	l.conns, l.inFlight = make(map[uint64]*conn), make(map[uint64]proposal)
	l.remotes, l.subscriptions = make(map[uint64]*remoteSession), make(map[uint64]*subscription)
	l.subscribers, l.subscribersOf = make(map[uint64]*subscriber), make(map[uint64][]*subscriber)
	for _, id := range remotes {
		l.RemoteHeld(now, id)
		l.newRemotes = 0 // a new leader requests all at once
	}
}

// Stop ends the leadership. It detaches the sessions at home here from every connection: pongs of a
// later leadership would renew sessions that it does not know. Other work that was not taken is
// dropped.
func (l *Leader) Stop() {
	if l.epoch == 0 {
		return
	}
	cut := l.ready.Cut
	*l.ready = Ready{Cut: cut}
	for _, c := range sortedConns(l.conns) {
		if !c.cut {
			l.ready.Cut = append(l.ready.Cut, Cut{Conn: c.id})
		}
	}
	l.epoch = 0
	l.barrier.inFlight = false
}

func sortedConns(conns map[uint64]*conn) []*conn {
	return slices.SortedFunc(maps.Values(conns), func(a, b *conn) int { return cmp.Compare(a.id, b.id) })
}

// Take returns the work since the last Take. The result is valid until the next Take; message and
// body bytes may be kept.
func (l *Leader) Take() *Ready {
	if l.epoch != 0 {
		l.flushCommands()
		l.flushNotify()
		l.beginBarrier()
		// A cut may have come after the barrier of the pong.
		l.ready.Pongs = slices.DeleteFunc(l.ready.Pongs, func(p Pong) bool {
			c := l.conns[p.Conn]
			return c == nil || !l.canPong(c)
		})
	}
	r := l.ready
	l.taken.reset()
	l.ready, l.taken = l.taken, r
	return r
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
	if l.epoch == 0 {
		return 0
	}
	l.observe(now)
	return l.clock.now()
}

// LogTimeRuns is false after a pause, until the leadership is confirmed: no tick is proposed, and
// client batches keep the same log time. Call LogTime first: it detects a pause.
func (l *Leader) LogTimeRuns() bool { return l.epoch != 0 && !l.clock.paused }

// observe notes the time of a call. After a pause nothing expires until a later barrier has
// confirmed the leadership, and what clients sent meanwhile has been read from the sockets.
func (l *Leader) observe(now uint64) {
	if !l.clock.observe(now) {
		return
	}
	l.stats.Pauses++
	l.pauseBarrier, l.pauseSince, l.pauseTicks, l.confirmed = l.barrier.number, l.clock.seen, 0, false
	l.barrier.wanted, l.barrier.backoff = true, false
	l.unconfirmedSince = l.clock.seen
}

// SkipTime moves log time forward by some ms while the monotonic time stays. A test skips time in
// which nothing is due. The next tick logs it if a deadline is pending. Production drivers do not
// call it.
func (l *Leader) SkipTime(now, by uint64) {
	if l.epoch == 0 {
		return
	}
	l.observe(now)
	l.clock.skip(by)
	l.skipped = true
}

// Tick does what is due. Heard returns when something was last received on a connection, and
// whether it is open. NextDeadline is the log time at which the machine has something to expire.
func (l *Leader) Tick(now uint64, heard func(conn uint64) (at uint64, open bool), nextDeadline uint64, hasDeadline bool) {
	if l.epoch == 0 {
		return
	}
	l.observe(now)
	now = l.clock.seen
	l.backoff, l.barrier.backoff = false, false
	if l.clock.paused {
		l.pauseTicks++
		if l.confirmed && l.pauseTicks > 1 && now-l.pauseSince >= MinPauseDrain {
			l.clock.resume()
		} else if !l.confirmed && !(l.barrier.inFlight && l.barrier.number > l.pauseBarrier) {
			l.barrier.wanted = true
		}
	}
	if l.barrier.proved {
		l.unconfirmedSince = max(l.unconfirmedSince, l.barrier.lastProof)
	}
	if now-l.unconfirmedSince > l.cfg.BarrierTimeout {
		for _, c := range sortedConns(l.conns) {
			if at, _ := heard(c.id); !c.cut {
				c.last = max(c.last, l.clock.at(at))
				l.cut(c, "the shard's leadership is not confirmed; connect to its master")
			}
		}
	}
	if !l.clock.paused {
		l.checkSilence(heard)
		l.tickIfDue(nextDeadline, hasDeadline)
	}
	if !l.barrier.inFlight && now-l.barrier.began >= l.cfg.SelfCheck {
		l.barrier.wanted = true
	}
	if now >= l.nextCompare {
		l.nextCompare = now + l.cfg.Compare
		l.ready.Compare = true
	}
	l.newRemotes = 0
	l.requestDelayed()
	l.retryDue()
	l.subscriptionOrder = slices.DeleteFunc(l.subscriptionOrder, func(k *subscription) bool {
		if l.tickSubscription(k) {
			return false
		}
		delete(l.subscriptions, k.shard)
		return true
	})
	l.expireSubscribers()
}

// tickIfDue asks for a tick if a deadline is due. If it is still due after a tick, one Apply could
// not expire all, and ticks are paced.
//
// A pending deadline needs a tick now and then too: a new leader continues from the logged time, so
// unlogged time is lost for timers. A young leader logs more often, because another change may
// follow. So only a small part of its time is lost, and timers end however often leaders change.
func (l *Leader) tickIfDue(at uint64, has bool) {
	now := l.clock.now()
	switch {
	case !has:
		return
	case now < at:
		if !l.skipped && l.clock.seen-l.tickAt < min(MaxStampInterval, max(MinStampInterval, (l.clock.seen-l.leaderSince)/StampIntervalDivisor)) {
			return
		}
	case l.ticked && at <= l.tickStamp && l.clock.seen-l.tickAt < minTickInterval:
		return
	}
	l.ticked, l.tickAt, l.tickStamp, l.skipped = true, l.clock.seen, now, false
	l.ready.Tick = true
}

// Stats returns the counters.
func (l *Leader) Stats() Stats {
	s := l.stats
	s.RemoteSessions, s.Sessions, s.Connections = len(l.remotes), l.sessions.Len(), len(l.conns)
	for _, k := range l.subscriptionOrder {
		s.Unsubscribed += k.queued.n + k.asked.n
	}
	s.Unsubscribed += l.delayed.n + l.retry.n
	for _, p := range l.subscriberOrder {
		if !p.dropped {
			s.Subscribers++
		}
	}
	return s
}
