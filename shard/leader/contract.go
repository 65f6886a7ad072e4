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

	MaxNewAtOnce   = 16  // new remote sessions within NewRemoteDelay that are requested with the next tick; others are delayed
	NewRemoteDelay = 500 // the least delay; they are requested at its multiples

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

// Stats are counters since New. The first two fields are gauges.
type Stats struct {
	RemoteSessions, Unsubscribed int

	Pauses            uint64 // of the process
	LostSubscriptions uint64 // subscriptions that began again with the whole list
	Malformed         uint64 // messages of other leaders
}

// Heard returns when something was last received on a connection, and whether it is open.
type Heard func(conn uint64) (at uint64, open bool)

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
