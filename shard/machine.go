package shard

import "github.com/signalbox-dev/signalbox/shard/container"

// Machine is the state of one data shard. It is not safe for concurrent use: Apply, BeginSnapshot
// and Snapshot.Close need it alone; reads may run beside each other, and not beside those.
//
// Its parts are types of their own. A command's rule is a function of the machine, and what the
// rule changes are methods of the record that changes. So the methods here are what callers see.
type Machine struct {
	id      uint64
	applied uint64 // index of the last entry
	format  uint8  // the highest that it applied: snapshots and chunks name it
	epoch   uint64 // the register: leader epoch of the last take-over
	epochAt uint64 // log time of that take-over; 0: it is in a snapshot. Not part of the state
	limits  Limits
	work    workLimits

	clock        // log time, buckets, take-overs, deadlines
	nodeTable    // coordination nodes
	sessionTable // sessions, those that have ended included
	imports      importTable
	clearing     clearState

	calledProcesses []*hostedObject // in this Apply; empty between Applies
	transferring    bool            // the leader of the present epoch gives its leadership to another one

	semaphores semaphoreTable
	serial     uint64 // of semaphores, to link records within one snapshot; not part of the state

	snapshot *Snapshot // being written: records are set aside before they change
	snapMark uint32    // of the newest snapshot

	batch // of the Apply that is going on

	interner container.Interner
	spares   spares

	leaseTransfers uint64                     // for metrics, as node.times
	preemptions    [preemptionOutcomes]uint64 // by PreemptionOutcome; for metrics
	// leases, by LossCause; for metrics, and not of nodes, which may be dropped
	lost         [lossCauses]uint64
	formerOwners formerOwnerTable // in nodes with slow-wait
}

// New makes an empty machine for the shard with this id. It serves nothing until CmdBuckets gave it
// buckets and CmdNodePut nodes.
func New(id uint64) *Machine {
	return &Machine{
		id:           id,
		format:       firstFormat,
		limits:       defaultLimits(),
		work:         defaultWorkLimits(),
		nodeTable:    nodeTable{nodes: make(map[uint64]*node)},
		sessionTable: newSessionTable(),
		semaphores:   semaphoreTable{ring: make([]*semaphore, maxNewest)},
	}
}

// ID is the shard's id, as given to New.
func (m *Machine) ID() uint64 { return m.id }

// Epoch is the register of leader epochs: that of the last take-over applied, 0 before the first.
func (m *Machine) Epoch() uint64 { return m.epoch }

// Format is the highest format version of the entries applied, in which snapshots are written.
func (m *Machine) Format() uint8 { return m.format }

// LogTime is the shard's clock, in ms.
func (m *Machine) LogTime() uint64 { return m.logTime }

// Wall is the wall clock of the last entry applied, 0 before the first since the machine was made
// or restored. It is for display.
func (m *Machine) Wall() uint64 { return m.wall }

// AppliedIndex is the log index of the last entry applied.
func (m *Machine) AppliedIndex() uint64 { return m.applied }

// Limits are the bounds in force.
func (m *Machine) Limits() Limits { return m.limits }

// NextDeadline is the log time from which on a tick (a batch without commands) would do something,
// if any: now while work is left over.
func (m *Machine) NextDeadline() (logTime uint64, ok bool) {
	if m.takeovers.sweeping || len(m.ending) > 0 || len(m.dropping) > 0 || m.clearing.active {
		return m.logTime, true
	}
	at, rec := m.deadlines.first()
	if rec == nil {
		return 0, false
	}
	return max(at+1, m.logTime), true
}

// hasBacklog reports whether work is left over: sessions not swept since a take-over, entries of
// ended sessions, dropped nodes, due deadlines.
func (m *Machine) hasBacklog() bool {
	at, rec := m.deadlines.first()
	return m.takeovers.sweeping || len(m.ending) > 0 || len(m.dropping) > 0 || rec != nil && m.logTime > at
}

// SelfCheck is the least self-check period of the nodes that are known here, in ms: how often the
// shard's leader must make sure that it leads. 0 without nodes.
func (m *Machine) SelfCheck() uint64 { return m.selfCheck }

// Grace is the least grace period of the nodes, in milliseconds; 0 without any.
func (m *Machine) Grace() uint64 { return m.grace }

// Semaphores reads semaphores.
func (m *Machine) Semaphores() Semaphores { return Semaphores{reader{m}} }

// Sessions reads sessions, those at home here and remote ones.
func (m *Machine) Sessions() Sessions { return Sessions{reader{m}} }

// Processes reads coordination processes.
func (m *Machine) Processes() Processes { return Processes{reader{m}} }

// Tracks reads the tracks of rollouts.
func (m *Machine) Tracks() Tracks { return Tracks{reader{m}} }

// RateLimits reads the trees of rate limits.
func (m *Machine) RateLimits() RateLimits { return RateLimits{reader{m}} }

// Nodes reads coordination nodes.
func (m *Machine) Nodes() Nodes { return Nodes{reader{m}} }

// Buckets reads copies of buckets for a move.
func (m *Machine) Buckets() Buckets { return Buckets{reader{m}} }

// Load reads the shard's busiest objects.
func (m *Machine) Load() Load { return Load{reader{m}} }

// Metrics reads counters.
func (m *Machine) Metrics() Metrics { return Metrics{reader{m}} }
