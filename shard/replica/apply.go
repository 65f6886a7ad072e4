package replica

import (
	"errors"
	"fmt"
	"time"

	"github.com/lni/dragonboat/v4/statemachine"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica/proposal"
)

// stateMachine is a [Shard] as the engine sees it. The engine calls Update, PrepareSnapshot,
// RecoverFromSnapshot and Close one at a time; SaveSnapshot runs concurrently with Update. No
// method may call the engine, whose worker would wait for itself, except to propose, which only
// queues.
type stateMachine Shard

var _ statemachine.IConcurrentStateMachine = (*stateMachine)(nil)

// Update applies entries and delivers the events of each before it applies the next.
func (sm *stateMachine) Update(entries []statemachine.Entry) ([]statemachine.Entry, error) {
	for i := range entries {
		e := &entries[i]
		if err := (*Shard)(sm).step(e.Index, e.Cmd); err != nil {
			return nil, sm.host.fatal(err)
		}
		e.Result = statemachine.Result{Value: 1}
	}
	return entries, nil
}

// maxPooledEvents bounds the memory that a rare, very large step leaves behind.
const maxPooledEvents = 64 << 10

// step applies one entry. An error stops the process: other replicas may have applied an entry that
// this binary cannot read.
func (s *Shard) step(index uint64, entry []byte) error {
	h, _, err := shard.ReadHeader(entry)
	if errors.Is(err, shard.ErrFormat) {
		return fmt.Errorf("entry %d of shard %d: %w", index, s.cfg.ID, err)
	}
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	ev := &s.events
	if cap(ev.List) > maxPooledEvents || cap(ev.SemaphoreChanges) > maxPooledEvents {
		*ev = shard.Events{}
	}
	ev.Reset()

	before, epoch, logTime := s.machine.apply(index, entry, ev)
	s.counters.applied.Add(1)
	if len(ev.List) > 0 {
		s.counters.eventEntries.Add(1)
	}
	s.logTail.bytes.Add(int64(len(entry)))
	s.logTail.entries.Add(1)

	s.appliedAt = s.clock.Now()
	var b *proposal.Batch
	if err == nil {
		var more bool
		if b, more = s.proposals.Applied(h.Epoch, h.Seq, ev.HandedOff); more {
			s.proposer.proposeNow(s.appliedAt)
		}
	}
	if len(ev.List) > 0 && ev.List[0].Kind == shard.EventRefused {
		s.counters.refused.Add(1)
		if b != nil {
			// The new epoch has failed the batch already; if not, this is its outcome.
			s.proposer.fail([]*proposal.Batch{b}, protocol.StatusUnavailable)
			b = nil
		}
	}
	if epoch != before {
		s.leadership.epochApplied(epoch, logTime)
	}
	if b == nil {
		s.sink.Applied(s, index, nil, ev)
		s.tasks.AddEvents(nil, ev)
		return nil
	}
	// The batch was applied under its own epoch, so no newer epoch was in the log at b.Began. That
	// is a barrier.
	s.barriers.lastProof.note(time.Duration(b.Began))
	s.sink.Applied(s, index, b.Origins, ev)
	s.tasks.AddEvents(b.Origins, ev)
	for i := range b.Waiters {
		w := &b.Waiters[i]
		if w.Done != nil {
			w.Done(statusOfReply(ev, w.Command))
		} else {
			s.tasks.Done(w.Task, true)
		}
	}
	s.proposals.Recycle(b)
	return nil
}

// statusOfReply returns the error of the reply to a command among the events of its batch; nil for
// OK or without a reply.
func statusOfReply(ev *shard.Events, command int) error {
	for i := range ev.List {
		e := &ev.List[i]
		if e.Kind == shard.EventReply && e.Command == command {
			if e.Status == protocol.StatusOK {
				return nil
			}
			return &protocol.Error{Status: e.Status, Refusal: e.Refusal, Message: e.Text}
		}
	}
	return nil
}

// AppliedAt returns when the entry given to [Sink.Applied] was applied, by the host's clock. It is
// for Applied, which would otherwise read the clock again: a system call.
func (s *Shard) AppliedAt() time.Duration { return s.appliedAt }

// Lookup is not used: reads use [Shard.View] behind a barrier.
func (sm *stateMachine) Lookup(interface{}) (interface{}, error) {
	return nil, errors.New("reads do not go through the engine")
}

// Close has nothing to do: the machine is in memory.
func (sm *stateMachine) Close() error { return nil }
