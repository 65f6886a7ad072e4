package replica

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// Submit queues a command for the next batch and wakes the proposer. It copies the body and never
// blocks. StatusOK: the outcome will come through the sink. StatusUnavailable: this replica does
// not lead. StatusOverloaded: too many bytes wait already.
func (s *Shard) Submit(c shard.Command, o Origin) protocol.Status {
	status, wake := s.submit(c, o)
	if wake {
		s.proposals.wake()
	}
	return status
}

// Submitter submits many commands, to any shards, from one goroutine: an event loop submits what
// it has read, and then calls Flush. The commands of a shard share a batch, and an idle shard
// proposes without a switch of goroutines. The zero value is ready. It is not safe for concurrent
// use.
type Submitter struct {
	unproposed []*Shard // shards whose proposer this goroutine must start
}

// Submit is [Shard.Submit], except that the command may wait for the next Flush.
func (b *Submitter) Submit(s *Shard, c shard.Command, o Origin) protocol.Status {
	status, wake := s.submit(c, o)
	if wake {
		b.unproposed = append(b.unproposed, s)
	}
	return status
}

// Flush proposes the submitted commands, as far as their shards have room. It does not block. The
// batches count as proposed at now, a time of the host's clock that is a moment old at most.
func (b *Submitter) Flush(now time.Duration) {
	for i, s := range b.unproposed {
		b.unproposed[i] = nil
		s.propose(now)
	}
	b.unproposed = b.unproposed[:0]
}

// submit adds a command to the open batch. If it returns wake, the caller must wake the proposer or
// call propose: nobody else does.
func (s *Shard) submit(c shard.Command, o Origin) (status protocol.Status, wake bool) {
	q := &s.proposals
	if !q.leading.Load() {
		return protocol.StatusUnavailable, false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.phase != leading || q.draining {
		return protocol.StatusUnavailable, false
	}
	if q.waitingBytes+len(c.Body) > q.maxOpen {
		s.counters.overloaded.Add(1)
		return protocol.StatusOverloaded, false
	}
	q.add(c, o)
	return protocol.StatusOK, q.needsWake()
}

// propose sends waiting batches on the caller's goroutine, as far as there is room. It does not
// block: if another goroutine is proposing, or the replica is stopping, the proposer does it.
func (s *Shard) propose(now time.Duration) {
	p := &s.proposer
	if !p.mu.TryLock() {
		s.proposals.wake()
		return
	}
	p.collect()
	p.sendAll(now)
	// The proposer sleeps without looking at outcomes. It must look at those of the new batches.
	wake := p.sleeping && len(p.inFlight) > 0
	if wake {
		p.sleeping = false
	}
	p.mu.Unlock()
	if wake {
		s.proposals.wake()
	}
}
