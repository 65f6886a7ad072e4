package rollout

import (
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
)

// State is the state of a location.
type State = protocol.TrackState

const (
	Unset             = protocol.StateUnset             // no target yet: the location before it has had nothing for long enough
	Converging        = protocol.StateConverging        // leaders have yet to load the target
	AllConverged      = protocol.StateConverged         // all leaders have it, and there is nothing newer
	WaitingDelay      = protocol.StateWaitingDelay      // all have it, and the next version is old enough after GoesOnIn
	WaitingGate       = protocol.StateWaitingGate       // a gate is run for the next version
	WaitingShare      = protocol.StateWaitingShare      // the share has it, the others get it after GoesOnIn
	ReelectionPending = protocol.StateReelectionPending // the target is bad, and there is no other yet
	Stalled           = protocol.StateStalled           // leaders have not loaded the target for too long
	Paused            = protocol.StatePaused            // an operator paused it
	Empty             = protocol.StateEmpty             // no instance: nobody asks, and all later locations stand still
	Skipped           = protocol.StateSkipped           // empty for so long that the next location looks past it
	Excluded          = protocol.StateExcluded          // taken out of the order by an operator
	NoLeader          = protocol.StateNoLeader          // followers only: the target stays
	Ready             = protocol.StateReady             // the next poll moves it
	Removed           = protocol.StateRemoved           // not in the order any more
)

// Reason says why a target was chosen.
type Reason = protocol.TrackReason

const (
	ReasonInitial  = protocol.ReasonInitial  // the location's first
	ReasonAdvance  = protocol.ReasonAdvance  // the next version was due
	ReasonExplicit = protocol.ReasonExplicit // re-elected: an instance reported an explicit code
	ReasonImplicit = protocol.ReasonImplicit // re-elected: an instance could not get it from the source
	ReasonOperator = protocol.ReasonOperator // re-elected: an operator said so
	ReasonPromote  = protocol.ReasonPromote  // an operator promoted it
	ReasonRollback = protocol.ReasonRollback // an operator rolled back to it
)

// Role of an instance. A location waits for its leaders, not for its followers.
type Role = protocol.TrackInstanceRole

const (
	FollowerRole = protocol.InstanceFollower // loads versions, and delays nobody
	LeaderRole   = protocol.InstanceLeader   // its location waits until it has loaded the target
)

// Status is the state of a track at a moment.
type Status struct {
	Track          string
	ConfigRevision uint64
	Last           uint64 // the highest version there is
	Paused         bool
	SourceError    string
	NumInstances   uint64
	Config         *Config // with IncludeConfig
	Locations      []LocationStatus
	Gates          []GateRun
	Instances      []InstanceStatus // with IncludeInstances, by id
}

// LocationStatus is the state of a location. Times are as of the moment of the status.
type LocationStatus struct {
	Name       string
	State      State
	GoesOnIn   time.Duration // until it may go on by time alone, 0 unknown
	Target     uint64        // 0 none
	Stable     uint64        // what instances outside the share have, 0: all get the target
	Age        time.Duration // of the target
	Generation uint64
	Reason     Reason
	Instances  uint64
	Leaders    uint64
	Counted    uint64        // leaders that must have the target
	Reached    uint64        // of them, those that have it
	BlockedBy  []string      // the first of the others, by id
	BlockedFor time.Duration // since the first of them was behind
	Paused     bool
	Excluded   bool
	Rollback   bool
	Gate       string // under way or waiting, before GateVersion
	GateFor    uint64
}

// GateRun is a gate that is to be run now.
type GateRun struct {
	Location string
	Version  uint64
	Attempt  uint64
	Left     time.Duration // until it is inconclusive
	Gate     Gate
}

// InstanceStatus is the state of an instance.
type InstanceStatus struct {
	ID, Location, Meta string
	Session            uint64
	Incarnation        uint64
	Role               Role
	Demoted, InShare   bool
	Due, Sent          uint64 // the version it is to have, and the one that its last poll returned
	SentFor            time.Duration
	RegisteredFor      time.Duration
	ReportAge          time.Duration
	Report             Report
	Reached, HoldsUp   bool
	SaysBad            bool // its report says that the version is bad for everyone
	CannotLoad         bool // it fails over and over
}

// HistoryEntry is a target that a location had.
type HistoryEntry struct {
	Version      uint64
	At           time.Time     // by the server's wall clock
	Age          time.Duration // since it was set
	ConvergedAge time.Duration // since all leaders had it; 0 with Converged false
	Converged    bool
	Reason       Reason
	Skip         bool // it is never passed on

	// Log time in ms when it was set, and when all leaders had it. It is to be compared with that
	// of other rows of the track, and with an event's, alone.
	Log, ConvergedLog uint64
}

func statusOf(w *protocol.TrackStatus) *Status {
	s := &Status{
		Track: string(w.Name), ConfigRevision: w.ConfigRevision, Last: w.Last, Paused: w.Paused,
		SourceError: w.SourceError, NumInstances: w.NumInstances,
	}
	if w.Config.Source != 0 {
		c := configOf(&w.Config)
		s.Config = &c
	}
	for i := range w.Locations {
		s.Locations = append(s.Locations, locationOf(&w.Locations[i], w.Clock))
	}
	for i := range w.Gates {
		s.Gates = append(s.Gates, gateRunOf(&w.Gates[i], w.Clock))
	}
	s.addInstances(w)
	return s
}

func gateRunOf(g *protocol.GateRun, clock uint64) GateRun {
	return GateRun{Location: g.Location, Version: g.Version, Attempt: g.Attempt,
		Left: since(g.Deadline, clock), Gate: gateOf(&g.Gate)}
}

func locationOf(l *protocol.TrackLocationStatus, clock uint64) LocationStatus {
	return LocationStatus{
		Name: l.Name, State: l.State, GoesOnIn: since(l.Until, clock), Target: l.Target, Stable: l.Stable,
		Age: since(clock, l.Since), Generation: l.Generation,
		Reason: l.Reason, Instances: l.Members, Leaders: l.Leaders, Counted: l.Counted,
		Reached: l.Reached, BlockedBy: l.BlockedBy,
		BlockedFor: since(clock, l.BlockedSince), Paused: l.Paused, Excluded: l.Excluded, Rollback: l.Rollback,
		Gate: l.Gate, GateFor: l.GateVersion,
	}
}

func (s *Status) addInstances(w *protocol.TrackStatus) {
	for i := range w.Instances {
		p := &w.Instances[i]
		s.Instances = append(s.Instances, InstanceStatus{
			ID: p.ID, Location: p.Location, Meta: p.Meta, Session: p.Session, Incarnation: p.Incarnation,
			Role: p.Role, Demoted: p.Demoted, InShare: p.InShare,
			Due: p.Due, Sent: p.Sent, SentFor: since(w.Clock, p.SentAt),
			RegisteredFor: since(w.Clock, p.Registered), ReportAge: since(w.Clock, p.ReportAt),
			Report: Report(p.Report), Reached: p.Reached, HoldsUp: p.HoldsUp,
			SaysBad: p.SaysBad, CannotLoad: p.CannotLoad,
		})
	}
}

func historyEntryOf(r *protocol.TrackHistoryRow, clock uint64) HistoryEntry {
	return HistoryEntry{
		Version: r.Version, At: millis.Time(r.Wall),
		Age: since(clock, r.At), ConvergedAge: since(clock, r.Converged),
		Converged: r.Converged != 0, Reason: r.Reason, Skip: r.Skip, Log: r.At, ConvergedLog: r.Converged,
	}
}
