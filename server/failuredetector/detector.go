package failuredetector

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

const (
	// StepInterval is how often Step wants to be called when nothing happens.
	StepInterval = time.Second
	// RetryPause is the pause after something was done or refused, and the first back-off.
	RetryPause = 300 * time.Millisecond
	// MaxBackoff bounds every back-off.
	MaxBackoff = 10 * time.Minute
	// LogBarrierTimeout is how long an instance waits at most for its log to move before it says once more that it is alive.
	LogBarrierTimeout = time.Hour
	// FlapWindow: who is taken for dead sooner than this after it said that it is alive waits longer before it says so again.
	FlapWindow = 10 * time.Minute
	// DefaultOfflineAfter is how long an instance may be out of reach.
	DefaultOfflineAfter = 5 * time.Second
)

// Target is what an instance is meant to be.
type Target uint8

// Targets of an instance.
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

// View is what this instance knows at the moment of a Step.
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

// ActionKind of an action.
type ActionKind uint8

// Kinds of actions. All are requests to the leader of the meta shard to change the target of an instance.
const (
	None        ActionKind = iota
	MarkOffline            // the leader: Instance is unreachable, its target is to be Offline; try once
	GoOnline               // this instance is alive, its target is to be Online. To the leader itself, over the way its heartbeats take, through nobody else
	GoOffline              // this instance stops, its target is to be Offline
)

// Action is what is to be done now.
type Action struct {
	Kind     ActionKind
	Instance uint64
	Reason   string // for the meta state
}

// Reasons that are constant.
const (
	ReasonShutdown   = "shutdown"
	ReasonAutoOnline = "auto-online"
)

// Detector is the sentinel of one instance. It is not safe for concurrent use.
type Detector struct {
	offlineAfter time.Duration
	phase        phase
	acting       bool          // an action is being carried out
	lastCall     time.Duration // when Step or Finished was called last
	started      bool          // stepped counts

	leading bool
	records map[uint64]*memberRecord // while leading

	retry      backoff // of GoOnline and GoOffline
	logBarrier logBarrier
	flapping   flapBackoff
	accepted   bool // GoOffline was accepted
}

type phase uint8

const (
	initial      phase = iota // starting: whoever starts this instance says that it is there
	activated                 //
	shuttingDown              //
)

// New makes a machine that does nothing until Activate or Shutdown. OfflineAfter 0 is DefaultOfflineAfter.
func New(offlineAfter time.Duration) *Detector {
	if offlineAfter == 0 {
		offlineAfter = DefaultOfflineAfter
	}
	return &Detector{offlineAfter: offlineAfter, records: map[uint64]*memberRecord{}}
}

// Activate begins the watch. It is called once this instance has seen its own target Online; earlier, it would be raised twice.
func (m *Detector) Activate() {
	if m.phase == initial {
		m.phase = activated
	}
}

// Shutdown makes the machine say that this instance goes, until that is accepted, and nothing else any more.
func (m *Detector) Shutdown() {
	if m.phase != shuttingDown {
		m.phase = shuttingDown
		m.retry = backoff{}
		m.logBarrier = logBarrier{}
	}
}

// Accepted says that, after Shutdown, the leader has taken it.
func (m *Detector) Accepted() bool { return m.accepted }

// HeartbeatReceived is told of a heartbeat of an instance that succeeded. While this instance does not lead, it is ignored.
func (m *Detector) HeartbeatReceived(instance uint64, r Report, now time.Duration) {
	if x := m.record(instance); x != nil {
		x.heartbeatReceived(r, now)
	}
}

// HeartbeatFailed is told of a heartbeat of an instance that did not come, or of a call to it that got no answer.
func (m *Detector) HeartbeatFailed(instance uint64, now time.Duration) {
	if x := m.record(instance); x != nil {
		x.heartbeatFailed(now)
	}
}

func (m *Detector) record(instance uint64) *memberRecord {
	if !m.leading {
		return nil
	}
	return m.records[instance]
}

// Step decides what is to be done, at most one thing at a time: until Finished has been called with it there is nothing further. Wake is how long the next
// call may wait; it should come sooner when the view changes or this instance is to stop.
func (m *Detector) Step(now time.Duration, v View) (a Action, wake time.Duration) {
	if m.acting {
		return Action{}, StepInterval
	}
	m.skipPause(now)
	m.observe(now, v)
	switch m.phase {
	case activated:
		a, wake = m.stepRunning(now, v)
	case shuttingDown:
		a, wake = m.stepShutdown(now, v)
	default:
		wake = StepInterval
	}
	m.acting = a.Kind != None
	return a, wake
}

// Finished is told what became of an action: OK is that the leader accepted it. Applied is the index applied here when it was over.
func (m *Detector) Finished(a Action, outcome protocol.Status, applied uint64, now time.Duration) {
	m.acting = false
	m.lastCall, m.started = now, true
	switch a.Kind {
	case MarkOffline:
		if x := m.record(a.Instance); x != nil && outcome == protocol.StatusOK {
			x.marked, x.markedAt = true, now
		}
	case GoOnline, GoOffline:
		if a.Kind == GoOnline && m.phase == shuttingDown {
			return // it must not hold back what is to be said now
		}
		m.retry.outcome(outcome, now)
		if outcome != protocol.StatusOK {
			return
		}
		m.logBarrier = logBarrier{active: true, applied: applied, since: now}
		if a.Kind == GoOnline {
			m.flapping.onlineAccepted(now)
		} else {
			m.accepted = true
		}
	}
}

// skipPause shifts what is remembered by the time that this process was stopped: what it did not hear meanwhile says nothing about others.
func (m *Detector) skipPause(now time.Duration) {
	if gap := now - m.lastCall; m.started && gap > 2*StepInterval {
		for _, x := range m.records {
			x.shift(gap-StepInterval, now)
		}
	}
	m.lastCall, m.started = now, true
}

// observe takes in what has changed in the view.
func (m *Detector) observe(now time.Duration, v View) {
	if v.Leading != m.leading {
		m.leading = v.Leading
		clear(m.records) // a new leader has heard of nobody yet, and knows of no failure
	}
	if me, ok := v.self(); ok {
		m.flapping.observe(me.Target, m.offlineAfter, now)
	}
	if !m.leading {
		return
	}
	there := make(map[uint64]bool, len(v.Members))
	for _, p := range v.Members {
		if p.ID == v.Self || p.Target == Expelled {
			continue
		}
		there[p.ID] = true
		x := m.records[p.ID]
		if x == nil || x.incarnation != p.Incarnation || x.target != p.Target {
			// It has just come, or come back: it is given the time of a new one. Otherwise it would be taken for dead again at once.
			x = &memberRecord{incarnation: p.Incarnation, target: p.Target}
			m.records[p.ID] = x
		}
		x.noteApplied(v.Applied, now)
	}
	for id := range m.records {
		if !there[id] {
			delete(m.records, id)
		}
	}
}

// stepRunning is what an instance does while it runs.
func (m *Detector) stepRunning(now time.Duration, v View) (Action, time.Duration) {
	if m.leading {
		for _, p := range v.Members {
			if x := m.records[p.ID]; x != nil && p.Target == Online {
				if why := x.unreachable(m.offlineAfter, now); why != "" {
					return Action{Kind: MarkOffline, Instance: p.ID, Reason: why}, RetryPause
				}
			}
		}
	}
	// A leader does this too: a cluster whose only voter was taken for dead has nobody to hand over to.
	me, ok := v.self()
	if !ok || me.Target != Offline {
		return Action{}, StepInterval
	}
	for _, until := range []time.Duration{m.retry.until, m.logBarrier.until(v.Applied, now), m.flapping.until} {
		if until > now {
			return Action{}, min(StepInterval, until-now)
		}
	}
	return Action{Kind: GoOnline, Instance: v.Self, Reason: ReasonAutoOnline}, RetryPause
}

// stepShutdown is what an instance does that stops. It says so at least once, whatever the view shows: the view may be old.
func (m *Detector) stepShutdown(now time.Duration, v View) (Action, time.Duration) {
	me, ok := v.self()
	if !ok || me.Target == Expelled || m.accepted && me.Target == Offline {
		return Action{}, StepInterval
	}
	for _, until := range []time.Duration{m.retry.until, m.logBarrier.until(v.Applied, now)} {
		if until > now {
			return Action{}, min(StepInterval, until-now)
		}
	}
	return Action{Kind: GoOffline, Instance: v.Self, Reason: ReasonShutdown}, RetryPause
}
