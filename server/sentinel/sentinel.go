package sentinel

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

const (
	// Idle is how often Step wants to be called when nothing happens.
	Idle = time.Second
	// Retry is the pause after something was done or refused, and the first back-off.
	Retry = 300 * time.Millisecond
	// MaxBackoff bounds every back-off.
	MaxBackoff = 10 * time.Minute
	// BarrierTimeout is how long an instance waits at most for its log to move before it says once more that it is alive.
	BarrierTimeout = time.Hour
	// ShortStay: who is taken for dead sooner than this after it said that it is alive waits longer before it says so again.
	ShortStay = 10 * time.Minute
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

// Kind of an action.
type Kind uint8

// Kinds of actions. All are requests to the leader of the meta shard to change the target of an instance.
const (
	None      Kind = iota
	Mark           // the leader: Instance is unreachable, its target is to be Offline; try once
	GoOnline       // this instance is alive, its target is to be Online. To the leader itself, over the way its heartbeats take, through nobody else
	GoOffline      // this instance stops, its target is to be Offline
)

// Action is what is to be done now.
type Action struct {
	Kind     Kind
	Instance uint64
	Reason   string // for the meta state
}

// Reasons that are constant.
const (
	ReasonShutdown   = "shutdown"
	ReasonAutoOnline = "auto-online"
)

// Machine is the sentinel of one instance. It is not safe for concurrent use.
type Machine struct {
	offlineAfter time.Duration
	phase        phase
	busy         bool          // an action is being carried out
	stepped      time.Duration // when Step or Finished was called last
	started      bool          // stepped counts

	leading bool
	records map[uint64]*record // while leading

	retry   backoff // of GoOnline and GoOffline
	barrier barrier
	stays   stays
	accept  bool // GoOffline was accepted
}

type phase uint8

const (
	initial      phase = iota // starting: whoever starts this instance says that it is there
	activated                 //
	shuttingDown              //
)

// New makes a machine that does nothing until Activate or Shutdown. OfflineAfter 0 is DefaultOfflineAfter.
func New(offlineAfter time.Duration) *Machine {
	if offlineAfter == 0 {
		offlineAfter = DefaultOfflineAfter
	}
	return &Machine{offlineAfter: offlineAfter, records: map[uint64]*record{}}
}

// Activate begins the watch. It is called once this instance has seen its own target Online; earlier, it would be raised twice.
func (m *Machine) Activate() {
	if m.phase == initial {
		m.phase = activated
	}
}

// Shutdown makes the machine say that this instance goes, until that is accepted, and nothing else any more.
func (m *Machine) Shutdown() {
	if m.phase != shuttingDown {
		m.phase = shuttingDown
		m.retry = backoff{}
		m.barrier = barrier{}
	}
}

// Accepted says that, after Shutdown, the leader has taken it.
func (m *Machine) Accepted() bool { return m.accept }

// Heard is told of a heartbeat of an instance that succeeded. While this instance does not lead, it is ignored.
func (m *Machine) Heard(instance uint64, r Report, now time.Duration) {
	if x := m.record(instance); x != nil {
		x.heard(r, now)
	}
}

// Failed is told of a heartbeat of an instance that did not come, or of a call to it that got no answer.
func (m *Machine) Failed(instance uint64, now time.Duration) {
	if x := m.record(instance); x != nil {
		x.failed(now)
	}
}

func (m *Machine) record(instance uint64) *record {
	if !m.leading {
		return nil
	}
	return m.records[instance]
}

// Step decides what is to be done, at most one thing at a time: until Finished has been called with it there is nothing further. Wake is how long the next
// call may wait; it should come sooner when the view changes or this instance is to stop.
func (m *Machine) Step(now time.Duration, v View) (a Action, wake time.Duration) {
	if m.busy {
		return Action{}, Idle
	}
	m.slept(now)
	m.observe(now, v)
	switch m.phase {
	case activated:
		a, wake = m.watch(now, v)
	case shuttingDown:
		a, wake = m.leave(now, v)
	default:
		wake = Idle
	}
	m.busy = a.Kind != None
	return a, wake
}

// Finished is told what became of an action: OK is that the leader accepted it. Applied is the index applied here when it was over.
func (m *Machine) Finished(a Action, outcome protocol.Status, applied uint64, now time.Duration) {
	m.busy = false
	m.stepped, m.started = now, true
	switch a.Kind {
	case Mark:
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
		m.barrier = barrier{up: true, applied: applied, since: now}
		if a.Kind == GoOnline {
			m.stays.said(now)
		} else {
			m.accept = true
		}
	}
}

// slept shifts what is remembered by the time that this process was stopped: what it did not hear meanwhile says nothing about others.
func (m *Machine) slept(now time.Duration) {
	if gap := now - m.stepped; m.started && gap > 2*Idle {
		for _, x := range m.records {
			x.shift(gap-Idle, now)
		}
	}
	m.stepped, m.started = now, true
}

// observe takes in what has changed in the view.
func (m *Machine) observe(now time.Duration, v View) {
	if v.Leading != m.leading {
		m.leading = v.Leading
		clear(m.records) // a new leader has heard of nobody yet, and knows of no failure
	}
	if me, ok := v.self(); ok {
		m.stays.observe(me.Target, m.offlineAfter, now)
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
			x = &record{incarnation: p.Incarnation, target: p.Target}
			m.records[p.ID] = x
		}
		x.compare(v.Applied, now)
	}
	for id := range m.records {
		if !there[id] {
			delete(m.records, id)
		}
	}
}

// watch is what an instance does while it runs.
func (m *Machine) watch(now time.Duration, v View) (Action, time.Duration) {
	if m.leading {
		for _, p := range v.Members {
			if x := m.records[p.ID]; x != nil && p.Target == Online {
				if why := x.unreachable(m.offlineAfter, now); why != "" {
					return Action{Kind: Mark, Instance: p.ID, Reason: why}, Retry
				}
			}
		}
	}
	// A leader does this too: a cluster whose only voter was taken for dead has nobody to hand over to.
	me, ok := v.self()
	if !ok || me.Target != Offline {
		return Action{}, Idle
	}
	for _, until := range []time.Duration{m.retry.until, m.barrier.until(v.Applied, now), m.stays.until} {
		if until > now {
			return Action{}, min(Idle, until-now)
		}
	}
	return Action{Kind: GoOnline, Instance: v.Self, Reason: ReasonAutoOnline}, Retry
}

// leave is what an instance does that stops. It says so at least once, whatever the view shows: the view may be old.
func (m *Machine) leave(now time.Duration, v View) (Action, time.Duration) {
	me, ok := v.self()
	if !ok || me.Target == Expelled || m.accept && me.Target == Offline {
		return Action{}, Idle
	}
	for _, until := range []time.Duration{m.retry.until, m.barrier.until(v.Applied, now)} {
		if until > now {
			return Action{}, min(Idle, until-now)
		}
	}
	return Action{Kind: GoOffline, Instance: v.Self, Reason: ReasonShutdown}, Retry
}
