package shard

import (
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/process"
	"github.com/signalbox-dev/signalbox/shard/rollout"
)

// Machine is the state of one data shard. It is not safe for concurrent use: Apply, BeginSnapshot
// and Snapshot.Close need it alone; reads may run beside each other, and not beside those.
type Machine struct {
	id      uint64
	applied uint64 // index of the last entry
	epoch   uint64 // the register: leader epoch of the last take-over
	logTime uint64 // Invariant: never goes back
	limits  Limits
	work    workLimits

	tier      uint8
	buckets   []bucket // all of the tier, by number; empty until the first CmdBuckets
	copyCount uint64   // of how many of them this shard has a copy
	imports   []importState
	clearing  clearState

	nodes     map[uint64]*node // known, not dropped
	nodeIndex index[node]      // those and the ones being removed, by id
	dropping  []*node          // being removed, in order of their drop
	dropped   []uint64         // ids refused for good, sorted

	sessions map[uint64]*sessionRecord // home sessions, remote sessions, and ended sessions that still have entries
	ending   []*sessionRecord          // the latter, in order of their end
	// orphaned are those of them whose entries are all in copies that are not active, and so must
	// not change.
	orphaned       []*sessionRecord
	byCreateID     map[[protocol.KeyLen]byte]*homeSession
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

	batch batchState // of the Apply that is going on

	interner interner

	hot          hotSample                    // for metrics, as node.times
	formerOwners map[*semaphore]*formerOwners // in nodes with slow-wait; nil without any
}

// batchState is what one Apply needs at every step.
type batchState struct {
	out           *Events
	wall          uint64
	command       int
	releaseBudget int // budget left of work.releases

	raw     rawCommand // the command
	start   protocol.SessionStart
	attach  protocol.SessionAttach
	stop    protocol.SessionStop
	kill    protocol.SessionKill
	create  protocol.Create
	update  protocol.Update
	resize  protocol.Resize
	delete  protocol.Delete
	acquire protocol.Acquire
	release protocol.Release
	force   protocol.ForceRelease
	poll    protocol.TrackPoll
	proc    process.Out    // of the call of a process that goes on
	track   rollout.Events // of the call of a track that goes on
	key     []byte
	ids     []uint64
}

// New makes an empty machine for the shard with this id. It serves nothing until CmdBuckets gave it
// buckets and CmdNodePut nodes.
func New(id uint64) *Machine {
	return &Machine{
		id:             id,
		limits:         defaultLimits(),
		work:           defaultWorkLimits(),
		recent:         unindexedSemaphores{max: maxRecent},
		nodes:          make(map[uint64]*node),
		sessions:       make(map[uint64]*sessionRecord),
		byCreateID:     make(map[[protocol.KeyLen]byte]*homeSession),
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

// Tier is the tier the shard's buckets belong to, and how many buckets the tier has; 0 before the
// first CmdBuckets.
func (m *Machine) Tier() (tier uint8, total uint32) { return m.tier, uint32(len(m.buckets)) }

// Bucket is the epoch of a bucket's copy here, and whether it is active here.
func (m *Machine) Bucket(b uint32) (epoch uint64, active bool) {
	if uint64(b) >= uint64(len(m.buckets)) {
		return 0, false
	}
	return m.buckets[b].epoch, m.buckets[b].state == bucketActive
}

// SelfCheck is the least self-check period of the nodes that are known here, in ms: how often the
// shard's leader must make sure that it leads. 0 without nodes.
func (m *Machine) SelfCheck() uint64 { return m.selfCheck }

// Grace is the least grace period of the nodes, in milliseconds; 0 without any.
func (m *Machine) Grace() uint64 { return m.grace }

// Node is the config of a node that is known here and was not dropped.
func (m *Machine) Node(id uint64) (protocol.NodeConfig, bool) {
	n := m.nodes[id]
	if n == nil {
		return protocol.NodeConfig{}, false
	}
	return n.config, true
}

// Nodes are the ids of the nodes that are known here and not dropped, in order.
func (m *Machine) Nodes() []uint64 { return slices.Sorted(maps.Keys(m.nodes)) }
