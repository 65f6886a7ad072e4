package replica

import (
	"sync/atomic"

	"github.com/signalbox-dev/signalbox/shard"
)

// Stats are a replica's counters since its start, and gauges.
type Stats struct {
	Batches           uint64 // proposed
	Commands          uint64 // in them
	Bytes             uint64 // in them
	Applied           uint64 // entries applied
	AppliedIndex      uint64 // of the log
	Refused           uint64 // entries rejected because of an older epoch
	Dropped           uint64 // batches that the engine did not take, or dropped
	Undetermined      uint64 // batches whose outcome the engine does not know
	TakeOvers         uint64 // proposed, repeated ones included
	RepeatedTakeOvers uint64
	Overloaded        uint64 // commands rejected by Submit
	Barriers          uint64 // successful rounds of read-index
	BarrierFails      uint64 // rounds that failed or found another epoch
	MessagesDropped   uint64 // messages of other leaders over the limit
	Snapshots         uint64 // saved
	Restores          uint64 // machines restored from a snapshot

	InFlight     int // batches proposed and not yet applied
	WaitingBytes int // in the open and sealed batches
	Epoch        uint64
	LogTime      uint64
	Leading      bool
	Leader       uint64 // replica id, 0 unknown
}

type counters struct {
	batches, commands, bytes, applied, refused, dropped, undetermined,
	takeOvers, repeatedTakeOvers, overloaded atomic.Uint64
	eventEntries atomic.Uint64 // entries that had events
	barriers, barrierFails, messagesDropped, snapshots,
	restores atomic.Uint64
}

// Stats returns the counters; each is exact, but they are not from one moment.
func (s *Shard) Stats() Stats {
	c := &s.counters
	st := Stats{
		Batches: c.batches.Load(), Commands: c.commands.Load(), Bytes: c.bytes.Load(),
		Applied: c.applied.Load(), Refused: c.refused.Load(),
		Dropped: c.dropped.Load(), Undetermined: c.undetermined.Load(), TakeOvers: c.takeOvers.Load(),
		RepeatedTakeOvers: c.repeatedTakeOvers.Load(),
		Overloaded:        c.overloaded.Load(), Barriers: c.barriers.Load(), BarrierFails: c.barrierFails.Load(),
		MessagesDropped: c.messagesDropped.Load(),
		Snapshots:       c.snapshots.Load(), Restores: c.restores.Load(),
		Leading: s.Leading(), Leader: s.LeaderReplica(),
	}
	s.View(func(m *shard.Machine) {
		st.AppliedIndex, st.Epoch, st.LogTime = m.AppliedIndex(), m.Epoch(), m.LogTime()
	})
	st.InFlight, st.WaitingBytes = s.proposals.Load()
	return st
}

// report adds the shard's own knowledge to its replica's report.
func (s *Shard) report(r *GroupReport) { r.Leading, r.Applied = s.Leading(), s.machine.appliedIndex() }
