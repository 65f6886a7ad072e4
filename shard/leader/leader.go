// Package leader is the duties of a shard's leader as a pure step machine: liveness of sessions by connection, log time, ticks for due deadlines, the
// self-check, and the subscriptions that tell a shard when a guest's session is gone.
//
// Inputs are calls, time is an argument, outputs are data: the driver feeds calls to a [Leader] from one goroutine, and after each call, or after
// several, carries out what [Leader.Take] returns. Nothing here reads a clock, blocks, or starts anything, and equal inputs give equal outputs.
//
// What the driver owes the leader:
//
//   - Start is called once the epoch of this leadership was applied here, and before any event of a later log entry is fed; Stop as soon as
//     leadership is in doubt. A retake of the epoch within the same term is no new leadership and is not told.
//   - Events of the log are fed in log order: Attached, Detached, Ended, RemoteHeld, RemoteIdle, BucketsFrozen, BucketsActive, BucketsLeft. What a batch
//     carried of the leader's own commands is reported by Done after the events of that batch. Clients whose session's home was frozen are told on its connection
//     before BucketsFrozen is called: every pong that is sent afterwards comes behind that.
//   - A barrier asked for by Ready.Barrier begins after Take returned, and ends with exactly one BarrierDone, in success only if a linearizable
//     read of the epoch register returned the leader's own epoch. A failed or timed-out one is reported too, else no other is ever asked for.
//   - Commands are submitted in order. The outcome of each is reported by Done: applied, or never to be applied. An undetermined one is not
//     reported until it is determined.
//   - Tick comes every 100 ms or so, at the latest every 250 ms. A gap of more than [PauseGap] between two calls counts as a pause of the process.
//   - now is monotonic, in ms, the same clock for all calls and for what heard returns.
package leader

import (
	"cmp"
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader/idset"
)

// Fixed numbers of the leader; times in ms.
const (
	PauseGap             = 1_000  // a longer gap between two calls is a pause: log time does not count it
	MaxExtrapolation     = 250    // a driver that stamps between calls by itself may go on from the newest LogTime for this long; so much of a pause counts
	MinPauseDrain        = 200    // after a pause, connections are heard out for at least this long, and two ticks, before anything may expire
	ZeroTimeoutSilence   = 60_000 // silence after which a session with timeout 0 counts as lost although its connection is open
	MaxExpiries          = 1_000  // sessions a command detaches or releases at most
	ExpiriesPerSec       = 5_000  // sessions detached or released per second at most
	MaxStampInterval     = 10_000 // while a deadline is to come, the log hears of the time at least this often: so much of it a new leader finds missing at most
	MinStampInterval     = 500    // and this often after a change of leader, then with growing pauses
	StampIntervalDivisor = 8      // of the time that this leader has led, a pause is at most this part: so much is lost when leaders follow each other

	MaxNewPerTick = 16  // new guests between two ticks whose homes are asked with the next; the others grow first
	NurseryTime   = 500 // for so long

	MaxMessage         = 64 << 10 // bytes of a message to a peer
	MaxRequestSessions = 512      // sessions in a question
	MaxPendingRequests = 8        // questions of a link that wait for an answer
	MaxQueuedSessions  = 64 << 10 // sessions in questions that wait for a barrier; more are dropped, and asked again
	MaxLookups         = 4 << 10  // sessions looked up after one barrier
	MaxUnacked         = 64 << 10 // news kept for a peer that does not confirm; past it the peer is dropped, and subscribes anew

	DefaultSelfCheck      = protocol.DefaultSelfCheckPeriod
	DefaultCompare        = 60_000
	DefaultBarrierTimeout = protocol.DefaultGracePeriod

	maxSegments       = 64     // remembered
	maxNotifySessions = 512    // in one message of news
	maxNotifyWindow   = 32     // of unconfirmed news
	maxDescription    = 4_096  // more than the specification allows, for peers of later versions
	maxRemoteUpdates  = 256    // attach epochs and descriptions proposed per Take
	minTickInterval   = 200    // 1,000 expiries each: as many a second as ExpiriesPerSec
	subscriberTimeout = 60_000 // silence after which a subscriber is forgotten
	unknownShard      = 0
)

// Route says which shard owns a bucket, and under which bucket epoch. Shard 0: nobody knows. It must not call back.
type Route func(tier uint8, bucket uint32) (shard, epoch uint64)

// Config of a leader. Zero values are the defaults.
type Config struct {
	Shard          uint64 // the shard that is led
	Route          Route  // needed
	SelfCheck      uint64 // ms between self-checks, and between signs of life asked of homes; default 1,000
	Compare        uint64 // ms between full comparisons of what guests hold; default 60,000
	BarrierTimeout uint64 // ms without a successful barrier after which all connections are cut, so that clients try elsewhere; default 10,000
}

// State is what a leader looks up in its shard's machine. The driver gives it to a call, with the machine kept from applying for the duration of that call.
type State interface {
	// HomeBucket is the epoch of the session's home bucket in this shard, and whether it is ACTIVE here. It is false for a session of another tier.
	HomeBucket(session uint64) (epoch uint64, active bool)
	// Session looks a session up among those at home here. Alive is false for one that is unknown, ended, or overdue by log time.
	Session(session uint64) (view shard.SessionView, alive bool)
	// Guest looks up what this shard knows of a session at home elsewhere.
	RemoteSession(session uint64) (view shard.RemoteSessionView, known bool)
}

// Command is a command to propose. Note comes back with [Leader.Done].
type Command struct {
	shard.Command
	ID uint64
}

// Pong answers a ping: to be sent on the connection with the shard's id.
type Pong struct{ Conn, Ping uint64 }

// Message is a message to the leader of another shard; it may also be the same shard. Losing it is harmless.
type Message struct {
	To    uint64
	Bytes []byte
}

// Cut takes a connection from this shard: from the moment it is taken no pong of this shard may be sent on it, unless Reason is empty and its client was told before
// that its sessions at home here are detached.
type Cut struct {
	Conn   uint64
	Reason string // why the connection is to be closed; empty: it may stay, without the sessions at home here
}

// Ready is what the leader wants done, in this order: cuts first.
type Ready struct {
	Cut      []Cut
	Pongs    []Pong
	Commands []Command
	Messages []Message
	Barrier  uint64 // begin the barrier with this number; 0 is none
	Tick     bool   // propose a batch, if empty then empty: a deadline is due, or to come
	Compare  bool   // call Holdings with the guests that hold or wait for something
}

func (r *Ready) reset() {
	clear(r.Cut)
	clear(r.Pongs)
	clear(r.Commands)
	clear(r.Messages)
	*r = Ready{Cut: r.Cut[:0], Pongs: r.Pongs[:0], Commands: r.Commands[:0], Messages: r.Messages[:0]}
}

// Stats count what happened since New, for metrics; Guests to Connections are what is now.
type Stats struct {
	RemoteSessions, Unsubscribed, Subscribers, Sessions, Connections int

	Pauses             uint64 // of the process
	TimedOut           uint64 // connections cut because nothing was heard
	Detaches           uint64 // sessions whose detach was proposed
	RemotesEnded       uint64 // guests whose release was proposed
	Queried            uint64 // guests asked about
	LostSubscriptions  uint64 // attempts given up, the whole list asked again
	DroppedSubscribers uint64 // subscribers that did not confirm
	Dropped            uint64 // questions and beats refused because too many waited
	Malformed          uint64 // peer messages
	FailedBarriers     uint64
	Retried            uint64 // commands that were never applied, and proposed again
}

// Leader is one leadership after another of one shard. It belongs to one goroutine.
type Leader struct {
	cfg   Config
	epoch uint64 // of this leadership; 0 is none
	clock clock
	stats Stats

	ready, taken *Ready

	// after a pause
	pauseBarrier     uint64 // a barrier with a higher number confirms the leadership
	pauseSince       uint64
	pauseTicks       int
	confirmed        bool
	unconfirmedSince uint64 // connections are cut when this is long past

	// ticks
	leaderSince uint64 // the leadership began
	tickAt      uint64 // when a tick was last asked for
	tickStamp   uint64 // its log time
	nextCompare uint64 // comparison of holdings
	ticked      bool
	skipped     bool // log time has leapt since

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
	lastID        uint64 // numbers go on over leaderships
	inFlight      map[uint64]proposal
	limiter       rateLimiter
	backoff       bool // one was refused: the next go out after a tick
	remoteUpdates []*shard.RemoteUpdateBody

	// guest side
	remotes           map[uint64]*remoteSession
	newRemotes        int // came since the last tick
	nursery           remoteList
	retry             remoteList
	endedRemotes      remoteList
	subscriptions     map[uint64]*subscription
	subscriptionOrder []*subscription // by shard
	lastAttempt       uint64
	lastRequest       uint64

	// home side
	subscribers     map[uint64]*subscriber
	subscriberOrder []*subscriber // by shard
	subscribersOf   map[uint64][]*subscriber
	notifyQueue     []*subscriber
}

// New makes a leader that leads nothing yet. Calls before Start are ignored, except that a connection with an attach is cut.
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

// Start begins a leadership: its epoch was applied here, at the given log time. Guests are the sessions that hold or wait for something here and
// are not in an ACTIVE home bucket of this shard. A leadership that was not stopped is stopped first.
func (l *Leader) Start(now, epoch, logTime uint64, guests []uint64) {
	l.Stop()
	// Everything is as in a new Leader, but what the driver may still refer to or has not taken.
	*l = Leader{cfg: l.cfg, stats: l.stats, ready: l.ready, taken: l.taken, barrier: barrierState{number: l.barrier.number}, lastID: l.lastID}
	l.epoch = epoch
	l.clock.start(now, logTime)
	l.leaderSince, l.unconfirmedSince, l.tickAt, l.limiter = now, now, now, rateLimiter{MaxExpiries, now}
	l.nextCompare = now + l.cfg.Compare
	l.barrier.wanted = true
	l.conns, l.inFlight = make(map[uint64]*conn), make(map[uint64]proposal)
	l.remotes, l.subscriptions = make(map[uint64]*remoteSession), make(map[uint64]*subscription)
	l.subscribers, l.subscribersOf = make(map[uint64]*subscriber), make(map[uint64][]*subscriber)
	for _, id := range guests {
		if faultStartUnasked {
			break
		}
		l.RemoteHeld(now, id)
		l.newRemotes = 0 // who leads anew asks about all
	}
}

// Stop ends the leadership. Every connection that had a session attached under it loses the sessions at home here, because a later leadership's pongs would speak for
// sessions it does not know. Nothing else that was not taken yet goes out.
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

// Take returns what the leader wants done since the last Take. The result is valid until the next Take; message and body bytes may be kept.
func (l *Leader) Take() *Ready {
	if l.epoch != 0 {
		l.flushCommands()
		l.flushNotify()
		l.beginBarrier()
		// A connection that answers a pong must be beyond doubt now, not only when its barrier ended.
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

// SetSelfCheck changes the time between self-checks, in ms: the least of what the shard's nodes ask for.
func (l *Leader) SetSelfCheck(ms uint64) {
	if ms > 0 {
		l.cfg.SelfCheck = ms
	}
}

// Leading says whether a leadership was started and not stopped.
func (l *Leader) Leading() bool { return l.epoch != 0 }

// LogTime is the stamp for a batch flushed now; 0 when nothing is led. It stands still in a pause and until the connections were heard out.
func (l *Leader) LogTime(now uint64) uint64 {
	if l.epoch == 0 {
		return 0
	}
	l.observe(now)
	return l.clock.now()
}

// LogTimeRuns is false while the leader holds back after a pause: no tick is proposed. Batches of clients' commands may go out, with LogTime,
// which stands still. Call LogTime first: it notices a pause.
func (l *Leader) LogTimeRuns() bool { return l.epoch != 0 && !l.clock.paused }

// observe notes the time of a call. After a pause nothing may expire until the leadership was confirmed by a barrier that began after it, and
// connections were heard out: what their clients sent meanwhile is still in the sockets.
func (l *Leader) observe(now uint64) {
	if !l.clock.observe(now) {
		return
	}
	l.stats.Pauses++
	l.pauseBarrier, l.pauseSince, l.pauseTicks, l.confirmed = l.barrier.number, l.clock.seen, 0, false
	l.barrier.wanted, l.barrier.backoff = true, false
	l.unconfirmedSince = l.clock.seen
}

// SkipTime moves log time on by so much, in ms, while the monotonic time stays where it is: a test
// leaves out time in which nothing is due. The log hears of it with the next tick, if a deadline is
// to come. No driver in production calls it.
func (l *Leader) SkipTime(now, by uint64) {
	if l.epoch == 0 {
		return
	}
	l.observe(now)
	l.clock.skip(by)
	l.skipped = true
}

// Tick looks at what is due. Heard says when something was heard on a connection for the last time, and whether it is open. NextDeadline is the
// log time from which on a tick would do something in the machine.
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
	l.leaveNursery()
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

// tickIfDue asks for a tick if a deadline is due. One that stays due after a tick means that more are due than one Apply fires: they are paced.
//
// A deadline that is to come gets a tick now and then too. The log of an idle shard says nothing of
// the time that passes, and a new leader goes on from what the log says: a timer that was nearly
// over would begin again. A leader that has not led for long stamps more often, because another
// change may follow: what is lost is a small part of the time that it led, so that timers end
// however often leaders change.
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

// Stats says what happened so far.
func (l *Leader) Stats() Stats {
	s := l.stats
	s.RemoteSessions, s.Sessions, s.Connections = len(l.remotes), l.sessions.Len(), len(l.conns)
	for _, k := range l.subscriptionOrder {
		s.Unsubscribed += k.queued.n + k.asked.n
	}
	s.Unsubscribed += l.nursery.n + l.retry.n
	for _, p := range l.subscriberOrder {
		if !p.dropped {
			s.Subscribers++
		}
	}
	return s
}
