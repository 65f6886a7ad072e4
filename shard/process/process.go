package process

import (
	"math"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Now is the log entry's time, in ms: Time is log time, by which everything is decided, Wall the
// clock on the wall, for people. Time must not go back from call to call.
type Now struct {
	Log  uint64
	Wall uint64
}

// Process is one coordination process.
//
// Invariant: epochs and tokens are drawn from one counter that never goes back. Invariant: in
// PhasePreparing and PhaseCoordinating all members are in the round and none is absent; a change of
// the topology ends these phases. Invariant: once a round is decided complete (PhaseCompleting), it
// is complete for all that were its members: nothing turns it into a cancel.
type Process struct {
	options       protocol.ProcessOptions
	members       []*member // by order
	joinOrder     uint64    // last order given
	counter       uint64    // last epoch or token given
	topology      uint64    // version of the member list; rises with each change of it
	phase         protocol.ProcessPhase
	round         round  // the present one, or the last
	attempt       uint64 // rounds of this topology that failed, one after the other
	start         uint64 // when the next round starts: in PhaseWaiting, or once the present one is complete, if pending
	pending       bool   // a round is needed once the present one is complete; only in PhaseCompleting
	idle          uint64 // PhaseIdle: up to when the process is kept
	history       []protocol.ProcessHistoryRound
	formerMembers []formerMember // in the order in which they went
	counters      protocol.ProcessCounters

	cachedMembers []protocol.ProcessMember // roster of the round; not part of the state
}

// round is the state of the present round; the state of its members is in the members.
type round struct {
	epoch       uint64
	topology    uint64
	coordinator uint64 // order of the member, which may have gone since
	session     uint64 // its session when the round started
	attempt     uint64
	size        uint64
	started     uint64 // log time
	wall        uint64
	prepared    uint64 // log time at which the last member had prepared, or 0
	decided     uint64 // log time, or 0
	deadline    uint64 // 0: none
	result      []byte // never changed in place
}

// New makes a process without members, whose epochs begin above floor: that of a name's next
// process must be at least Last of the one before, so that its epochs, which are fencing tokens,
// never come again.
func New(at Now, floor uint64, options protocol.ProcessOptions) (*Process, error) {
	options, err := withDefaults(options)
	if err != nil {
		return nil, err
	}
	if floor > maxCounter {
		return nil, protocol.Errorf(protocol.StatusBadRequest, "epochs cannot begin above %d", floor)
	}
	return &Process{options: options, counter: floor, idle: later(at.Log, Retention)}, nil
}

// later is a time that far ahead, without overflow.
func later(now, d uint64) uint64 {
	if d > math.MaxUint64-now {
		return math.MaxUint64
	}
	return now + d
}

// SkipEpochs replaces each counter by next of it, in a process that was read from a backup: numbers
// given out after the backup must not be given out again.
func (p *Process) SkipEpochs(next func(uint64) uint64) {
	p.joinOrder = next(p.joinOrder)
	p.counter = next(p.counter)
}

// HighestEpoch is the highest epoch or token given.
func (p *Process) HighestEpoch() uint64 { return p.counter }

// Epoch returns the epoch of the present round, or of the last one: 0 before the first.
func (p *Process) Epoch() uint64 { return p.round.epoch }

// Phase is the present phase.
func (p *Process) Phase() protocol.ProcessPhase { return p.phase }

// Topology is the version of the member list.
func (p *Process) Topology() uint64 { return p.topology }

// Coordinator is the session of the coordinator of the present round, or the last: 0 before the
// first.
func (p *Process) Coordinator() uint64 { return p.round.session }

// Len is the number of members, absent ones included.
func (p *Process) Len() int { return len(p.members) }

// Options are those in force, defaults filled in.
func (p *Process) Options() protocol.ProcessOptions { return p.options }

// Counters returns the counts.
func (p *Process) Counters() protocol.ProcessCounters { return p.counters }

// RoundSessions appends the sessions of the members that are in the present round and not absent,
// in order of joining: between these, messages may pass.
func (p *Process) RoundSessions(list []uint64) []uint64 {
	for _, m := range p.members {
		if m.inRound() && !m.absent {
			list = append(list, m.session)
		}
	}
	return list
}

// Preparing appends the sessions of the members that were notified to prepare the present round and
// have not, in order of joining, and gives the log time at which the round started.
func (p *Process) Preparing(list []uint64) (started uint64, sessions []uint64) {
	for _, m := range p.members {
		if m.status == protocol.MemberPreparing {
			list = append(list, m.session)
		}
	}
	return p.round.started, list
}

// LiveSessions appends the sessions of the members that are not absent, in or outside the present
// round, in order of joining.
func (p *Process) LiveSessions(list []uint64) []uint64 {
	for _, m := range p.members {
		if !m.absent {
			list = append(list, m.session)
		}
	}
	return list
}

// JoinOrder returns the join order of the member with the session, or 0.
func (p *Process) JoinOrder(session uint64) uint64 {
	if m := p.member(session); m != nil {
		return m.order
	}
	return 0
}

// Key returns the key of the member with the session, which may be empty.
func (p *Process) Key(session uint64) string {
	if m := p.member(session); m != nil {
		return m.key
	}
	return ""
}

// AllowsMessages reports whether messages between members may pass now: all are prepared, and not
// all have completed.
func (p *Process) AllowsMessages() bool {
	return p.phase == protocol.PhaseCoordinating || p.phase == protocol.PhaseCompleting
}

// Alter changes the options. Deadlines that are running stay as they are.
func (p *Process) Alter(at Now, options protocol.ProcessOptions, out *Out) error {
	p.fireDeadlines(at, out)
	options, err := withDefaults(options)
	if err != nil {
		return err
	}
	p.options = options
	out.Changes = append(out.Changes, protocol.ProcessChange{Kind: protocol.ProcessAltered, Phase: p.phase,
		Epoch: p.round.epoch, Topology: p.topology})
	return nil
}

// Latest is the round that ended last; false: none did.
func (p *Process) Latest() (protocol.ProcessHistoryRound, bool) {
	if len(p.history) == 0 {
		return protocol.ProcessHistoryRound{}, false
	}
	return p.history[len(p.history)-1], true
}

// History is the last rounds that ended, the newest last. The slice is the caller's.
func (p *Process) History() []protocol.ProcessHistoryRound { return slices.Clone(p.history) }

// Describe reads everything but the history.
func (p *Process) Describe() protocol.ProcessStatus {
	d := protocol.ProcessStatus{
		Phase: p.phase, Epoch: p.round.epoch, Topology: p.topology, Coordinator: p.round.session,
		Attempt: p.attempt, Started: p.round.wall, Start: p.start,
		Options: p.options, Counters: p.counters,
	}
	for _, m := range p.members {
		s := protocol.ProcessMemberInfo{Member: m.view(), Status: m.status, Token: m.token, Joined: m.joined}
		if m.absent {
			s.Status, s.Until = protocol.MemberAbsent, m.until
		}
		d.Members = append(d.Members, s)
	}
	return d
}

// Bounds of the log's format, beside those of the protocol. Every replica applies the same ones.
const (
	// MaxIdentity is the longest identity (the user a session belongs to), in bytes.
	MaxIdentity = 255
	// MaxHistory is how many ended rounds are remembered.
	MaxHistory = 32
	// MaxFormer is how many sessions that were members, and live on, are remembered.
	MaxFormer = 256
	// Retention is how long a process without members is kept, and a session that was a member
	// remembered, in ms of log time.
	Retention = 10 * 60 * 1000

	// maxCounter bounds the counters of a record that is read, so that they never overflow.
	maxCounter = 1 << 62
)

const (
	defaultBackoffMin = 50
	defaultBackoffMax = 5_000
)

// withDefaults checks options and puts defaults in place of zeroes.
func withDefaults(o protocol.ProcessOptions) (protocol.ProcessOptions, error) {
	if o.BackoffMin == 0 {
		o.BackoffMin = defaultBackoffMin
	}
	if o.BackoffMax == 0 {
		o.BackoffMax = max(defaultBackoffMax, o.BackoffMin)
	}
	return o, protocol.Validate(&o)
}

// backoff is the wait before the attempt, from 1.
func backoff(o *protocol.ProcessOptions, attempt uint64) uint64 {
	d := o.BackoffMin
	for i := uint64(1); i < attempt && d < o.BackoffMax; i++ {
		d *= 2
	}
	return min(d, o.BackoffMax)
}
