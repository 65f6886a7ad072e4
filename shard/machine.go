package shard

import "github.com/signalbox-dev/signalbox/protocol"

// Machine is the state of one data shard. It is not safe for concurrent use: Apply, BeginSnapshot
// and Snapshot.Close need it alone; reads may run beside each other, and not beside those.
type Machine struct {
	id      uint64
	applied uint64 // index of the last entry
	epoch   uint64 // the register: leader epoch of the last take-over
	logTime uint64 // Invariant: never goes back
	limits  Limits
	work    workLimits

	bucketTable
	imports  []importState
	clearing clearState

	nodes     map[uint64]*node // known, not dropped
	nodeIndex index[node]      // those and the ones being removed, by id
	dropping  []*node          // being removed, in order of their drop
	dropped   []uint64         // ids refused for good, sorted

	sessions sessionSet       // home sessions, remote sessions, and ended sessions that still have entries
	ending   []*sessionRecord // the latter, in order of their end
	// orphaned are those of them whose entries are all in copies that are not active, and so must
	// not change.
	orphaned       []*sessionRecord
	byCreateID     createIDSet
	endedCreateIDs expiringSet[[protocol.KeyLen]byte] // create ids of ended sessions
	endedRemotes   expiringSet[uint64]                // ids of ended remote sessions

	calledProcesses []*hostedObject // in this Apply; empty between Applies
	takeovers       takeovers
	handingOver     bool // the leader of the present epoch gives its leadership to another one
	deadlines       deadlines

	recent    unindexedSemaphores
	selfCheck uint64 // ms: the least self-check period of the nodes, 0 without any; follows from them
	grace     uint64 // ms: the least grace period of the nodes, 0 without any; follows from them

	serial uint64 // of semaphores, to link records within one snapshot; not part of the state

	snapshot *Snapshot // being written: records are set aside before they change
	snapMark uint32    // of the newest snapshot

	batch // of the Apply that is going on

	interner interner

	hot          hotSample                    // for metrics, as node.times
	formerOwners map[*semaphore]*formerOwners // in nodes with slow-wait; nil without any
}

// New makes an empty machine for the shard with this id. It serves nothing until CmdBuckets gave it
// buckets and CmdNodePut nodes.
func New(id uint64) *Machine {
	return &Machine{
		id:             id,
		limits:         defaultLimits(),
		work:           defaultWorkLimits(),
		recent:         unindexedSemaphores{slots: make([]*semaphore, maxRecent)},
		nodes:          make(map[uint64]*node),
		endedCreateIDs: newExpiringSet[[protocol.KeyLen]byte](),
		endedRemotes:   newExpiringSet[uint64](),
	}
}

// ID is the shard's id, as given to New.
func (m *Machine) ID() uint64 { return m.id }

// Epoch is the register of leader epochs: that of the last take-over applied, 0 before the first.
func (m *Machine) Epoch() uint64 { return m.epoch }

// LogTime is the shard's clock, in ms.
func (m *Machine) LogTime() uint64 { return m.logTime }

// Wall is the wall clock of the last entry applied, 0 before the first since the machine was made
// or restored. It is for display.
func (m *Machine) Wall() uint64 { return m.batch.wall }

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

// SelfCheck is the least self-check period of the nodes that are known here, in ms: how often the
// shard's leader must make sure that it leads. 0 without nodes.
func (m *Machine) SelfCheck() uint64 { return m.selfCheck }

// Grace is the least grace period of the nodes, in milliseconds; 0 without any.
func (m *Machine) Grace() uint64 { return m.grace }
