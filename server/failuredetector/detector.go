package failuredetector

import (
	"cmp"
	"maps"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

const (
	// StepInterval is how often Step should be called when nothing happens.
	StepInterval = time.Second
	// RetryPause is the pause after an action or its rejection, and the first back-off.
	RetryPause = 300 * time.Millisecond
	// MaxBackoff bounds every back-off.
	MaxBackoff = 10 * time.Minute
	// LogBarrierTimeout bounds the wait of an instance for its log to advance before it requests
	// Online again.
	LogBarrierTimeout = time.Hour
	// FlapWindow: an instance that is marked offline sooner than this after it came online waits
	// longer before it requests Online again.
	FlapWindow = 10 * time.Minute
	// DefaultOfflineAfter is how long an instance may be unreachable.
	DefaultOfflineAfter = 5 * time.Second
)

// Target is the target state of an instance.
type Target uint8

const (
	Offline Target = iota
	Online
	Expelled
)

// Member is an instance as the meta state has it.
type Member struct {
	ID          uint64
	Target      Target
	Incarnation uint64 // of the target: rises with each Online
}

// View is this instance's knowledge at the moment of a Step.
type View struct {
	Self    uint64
	Leading bool     // this instance leads the meta shard, as far as it knows
	Members []Member // in order of id
	Applied uint64   // index of the meta shard's log applied here
}

func (v *View) self() (Member, bool) {
	for _, m := range v.Members {
		if m.ID == v.Self {
			return m, true
		}
	}
	return Member{}, false
}

// ActionKind is the kind of an action.
type ActionKind uint8

// Kinds of actions. Each asks the leader of the meta shard to change the target of an instance.
const (
	None        ActionKind = iota
	MarkOffline            // by the leader: Instance is unreachable, set its target to Offline; try once
	// this instance is alive: set its target to Online. Send it to the leader directly, on the
	// route of the heartbeats
	GoOnline
	GoOffline // this instance stops: set its target to Offline
)

// Action is a decision that the caller carries out now.
type Action struct {
	Kind     ActionKind
	Instance uint64
	Reason   string // for the meta state
}

const (
	ReasonShutdown   = "shutdown"
	ReasonAutoOnline = "auto-online"
)

// Detector is the failure detector of one instance. It is not safe for concurrent use.
type Detector struct {
	offlineAfter time.Duration
	phase        phase
	acting       bool          // an action is being carried out
	lastCall     time.Duration // of Step or Finished
	started      bool          // lastCall is set

	leading bool
	records map[uint64]*memberRecord // while leading

	retry      backoff // of GoOnline and GoOffline
	logBarrier logBarrier
	flapping   flapBackoff
	accepted   bool // GoOffline was accepted
}

type phase uint8

const (
	initial      phase = iota // the instance's start sets its target Online by itself
	activated                 //
	shuttingDown              //
)

// New returns a detector that does nothing until Activate or Shutdown. OfflineAfter 0 is
// DefaultOfflineAfter.
func New(offlineAfter time.Duration) *Detector {
	return &Detector{offlineAfter: cmp.Or(offlineAfter, DefaultOfflineAfter), records: map[uint64]*memberRecord{}}
}

// Activate starts the detector. Call it once this instance has seen its own target Online; earlier,
// the target would be raised twice.
func (d *Detector) Activate() {
	if d.phase == initial {
		d.phase = activated
	}
}

// Shutdown makes the detector request Offline for this instance until that is accepted, and nothing
// else.
func (d *Detector) Shutdown() {
	if d.phase != shuttingDown {
		d.phase = shuttingDown
		d.retry = backoff{}
		d.logBarrier = logBarrier{}
	}
}

// Accepted reports whether the leader has accepted the request of Shutdown.
func (d *Detector) Accepted() bool { return d.accepted }

// HeartbeatReceived reports a heartbeat of an instance, with the incarnation of the process that
// sent it and the index of the meta shard's log applied there. It is ignored while this instance
// does not lead. So is one of a former process, which may be on its way for long, and one of a
// process that has not announced itself to the cluster yet.
func (d *Detector) HeartbeatReceived(instance, incarnation, applied uint64, now time.Duration) {
	if x := d.record(instance); x != nil && incarnation >= x.incarnation {
		x.heartbeatReceived(applied, now)
	}
}

// HeartbeatFailed reports a missing heartbeat of an instance, or a call to it without a reply.
func (d *Detector) HeartbeatFailed(instance uint64, now time.Duration) {
	if x := d.record(instance); x != nil {
		x.heartbeatFailed(now)
	}
}

func (d *Detector) record(instance uint64) *memberRecord {
	if !d.leading {
		return nil
	}
	return d.records[instance]
}

// Step decides on at most one action; there is no further one until Finished was called for it.
// Wake is how long the next call may wait. It should come earlier when the view changes or this
// instance is to stop.
func (d *Detector) Step(now time.Duration, v View) (a Action, wake time.Duration) {
	if d.acting {
		return Action{}, StepInterval
	}
	d.skipPause(now)
	d.observe(now, v)
	switch d.phase {
	case activated:
		a, wake = d.stepRunning(now, v)
	case shuttingDown:
		a, wake = d.stepShutdown(now, v)
	default:
		wake = StepInterval
	}
	d.acting = a.Kind != None
	return a, wake
}

// Finished reports the outcome of an action: OK if the leader accepted it. Applied is the index
// applied here at its end.
func (d *Detector) Finished(a Action, outcome protocol.Status, applied uint64, now time.Duration) {
	d.acting = false
	d.lastCall, d.started = now, true
	switch a.Kind {
	case MarkOffline:
		if x := d.record(a.Instance); x != nil && outcome == protocol.StatusOK {
			x.marked, x.markedAt = true, now
		}
	case GoOnline, GoOffline:
		if a.Kind == GoOnline && d.phase == shuttingDown {
			return // it must not delay the request to go offline
		}
		d.retry.outcome(outcome, now)
		if outcome != protocol.StatusOK {
			return
		}
		d.logBarrier = logBarrier{active: true, applied: applied, since: now}
		if a.Kind == GoOnline {
			d.flapping.onlineAccepted(now)
		} else {
			d.accepted = true
		}
	}
}

// skipPause shifts all times by a pause of this process: messages not received meanwhile are no
// evidence about others.
func (d *Detector) skipPause(now time.Duration) {
	if gap := now - d.lastCall; d.started && gap > 2*StepInterval {
		for _, x := range d.records {
			x.shift(gap-StepInterval, now)
		}
	}
	d.lastCall, d.started = now, true
}

func (d *Detector) observe(now time.Duration, v View) {
	if v.Leading != d.leading {
		d.leading = v.Leading
		clear(d.records) // a new leader has no reports
	}
	if me, ok := v.self(); ok {
		d.flapping.observe(me.Target, d.offlineAfter, now)
	}
	if !d.leading {
		return
	}
	there := make(map[uint64]bool, len(v.Members))
	for _, p := range v.Members {
		if p.ID == v.Self || p.Target == Expelled {
			continue
		}
		there[p.ID] = true
		x := d.records[p.ID]
		if x == nil || x.incarnation != p.Incarnation || x.target != p.Target {
			// It is new or came back, and gets the time of a new instance. Otherwise it would be
			// marked offline again at once.
			x = &memberRecord{incarnation: p.Incarnation, target: p.Target}
			d.records[p.ID] = x
		}
		x.noteApplied(v.Applied, now)
	}
	maps.DeleteFunc(d.records, func(id uint64, _ *memberRecord) bool { return !there[id] })
}

func (d *Detector) stepRunning(now time.Duration, v View) (Action, time.Duration) {
	if d.leading {
		for _, p := range v.Members {
			if x := d.records[p.ID]; x != nil && p.Target == Online {
				if why := x.unreachable(d.offlineAfter, now); why != "" {
					return Action{Kind: MarkOffline, Instance: p.ID, Reason: why}, RetryPause
				}
			}
		}
	}
	// A leader does this too: if the only voter of a cluster is marked offline, there is no other
	// leader.
	me, ok := v.self()
	if !ok || me.Target != Offline {
		return Action{}, StepInterval
	}
	for _, until := range []time.Duration{d.retry.until, d.logBarrier.until(v.Applied, now), d.flapping.until} {
		if until > now {
			return Action{}, min(StepInterval, until-now)
		}
	}
	return Action{Kind: GoOnline, Instance: v.Self, Reason: ReasonAutoOnline}, RetryPause
}

// stepShutdown decides while the instance stops. It requests Offline at least once, whatever the
// view shows: the view may be old.
func (d *Detector) stepShutdown(now time.Duration, v View) (Action, time.Duration) {
	me, ok := v.self()
	if !ok || me.Target == Expelled || d.accepted && me.Target == Offline {
		return Action{}, StepInterval
	}
	for _, until := range []time.Duration{d.retry.until, d.logBarrier.until(v.Applied, now)} {
		if until > now {
			return Action{}, min(StepInterval, until-now)
		}
	}
	return Action{Kind: GoOffline, Instance: v.Self, Reason: ReasonShutdown}, RetryPause
}
