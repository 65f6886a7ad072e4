package replica

import (
	"errors"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica/engine"
	"github.com/signalbox-dev/signalbox/shard/replica/proposal"
)

const (
	// pollPeriod is how often outcomes are polled while batches are in flight and nothing else
	// wakes the proposer. A success does not wait for it: it comes with the apply.
	pollPeriod = 25 * time.Millisecond
	// maxTakeOverDoublings bounds the timeout of a take-over, in doublings of that of other
	// proposals.
	maxTakeOverDoublings = 5
)

// inFlightBatch is a proposal and the number of its batch.
type inFlightBatch struct {
	proposal   engine.Proposal
	epoch, seq uint64
}

// proposer gives batches to the engine. Batches enter the log in the order in which they leave the
// queue, so only the holder of mu does it. The proposer's goroutine does everything;
// proposeNow only sends waiting batches, to spare an idle shard the switch to that goroutine.
type proposer struct {
	mu            sync.Mutex // before the queue's
	s             *Shard
	propose       func(entry []byte, within time.Duration) (engine.Proposal, error)
	sleeping      bool // the goroutine sleeps, or is about to, without polling outcomes: a sender must wake it
	inFlight      []inFlightBatch
	takeOver      engine.Proposal // the latest one
	takeOverEpoch uint64
	entry         []byte
}

func (p *proposer) init(s *Shard) {
	p.s, p.propose = s, p.toEngine
	if s.cfg.proposeVia != nil {
		p.propose = func(entry []byte, within time.Duration) (engine.Proposal, error) {
			next := func(entry []byte) (engine.Proposal, error) { return p.toEngine(entry, within) }
			return s.cfg.proposeVia(next, entry)
		}
	}
}

// toEngine is [engine.Engine.Propose].
func (p *proposer) toEngine(entry []byte, within time.Duration) (engine.Proposal, error) {
	return p.s.host.engine.Propose(p.s.session, entry, within)
}

func (p *proposer) loop() {
	s, q := p.s, &p.s.proposals
	timer := time.NewTimer(pollPeriod)
	defer timer.Stop()
	for {
		s.leadership.handleLeaderUpdate()
		p.mu.Lock()
		p.collect()
		wantTakeOver := p.takeOverIfDue()
		p.sendAll(s.clock.Now())
		p.sleeping = !wantTakeOver && p.takeOver == nil && len(p.inFlight) == 0
		if p.sleeping {
			timer.Reset(time.Hour)
		} else {
			timer.Reset(pollPeriod)
		}
		p.mu.Unlock()
		select {
		case <-q.Wakeup:
		case <-timer.C:
		case <-s.stopC:
			return
		}
	}
}

// proposeNow sends waiting batches on the caller's goroutine, as far as there is room. It does not
// block: if another goroutine is proposing, or the replica is stopping, the proposer does it.
func (p *proposer) proposeNow(now time.Duration) {
	if !p.mu.TryLock() {
		p.s.proposals.Wake()
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
		p.s.proposals.Wake()
	}
}

// sendAll sends batches while there are some, and room.
func (p *proposer) sendAll(now time.Duration) {
	for b := p.s.proposals.Next(int64(now)); b != nil; b = p.s.proposals.Next(int64(now)) {
		p.send(b)
	}
}

// send proposes a batch that is in flight already: its outcome may come before Propose returns.
func (p *proposer) send(b *proposal.Batch) {
	s, q := p.s, &p.s.proposals
	epoch, seq := b.Epoch, b.Seq
	commands := uint64(len(b.Origins))
	entry := b.Encode(shard.Header{Format: s.cfg.Format(), Epoch: epoch,
		Seq: seq, LogTime: s.logTime.stamp(), Wall: p.wall()})
	size := uint64(len(entry))
	t, err := p.propose(entry, s.cfg.ProposeTimeout)
	// The batch may have been applied, and be in the pool again, by now.
	if err != nil {
		s.counters.dropped.Add(1)
		b, _ := q.Remove(epoch, seq)
		if b == nil {
			return // a newer epoch was applied meanwhile and has failed it
		}
		st := protocol.StatusUnavailable
		if errors.Is(err, dragonboat.ErrSystemBusy) {
			st = protocol.StatusOverloaded
		}
		p.fail([]*proposal.Batch{b}, st)
		return
	}
	s.counters.batches.Add(1)
	s.counters.commands.Add(commands)
	s.counters.bytes.Add(size)
	p.inFlight = append(p.inFlight, inFlightBatch{t, epoch, seq})
}

// collect polls the engine's outcomes. Completed needs nothing, since the apply has reported it.
// Dropped is reported here. Any other outcome is known from the log alone.
func (p *proposer) collect() {
	s, q := p.s, &p.s.proposals
	keep := p.inFlight[:0]
	for _, f := range p.inFlight {
		switch f.proposal.Poll() {
		case engine.Pending:
			keep = append(keep, f)
		case engine.Completed:
		case engine.Dropped:
			s.counters.dropped.Add(1)
			if b, _ := q.Remove(f.epoch, f.seq); b != nil {
				p.fail([]*proposal.Batch{b}, protocol.StatusUnavailable)
			}
		case engine.Unknown:
			if q.MarkUndetermined(f.epoch, f.seq) {
				s.counters.undetermined.Add(1)
				s.log.Warn("proposal outcome unknown, taking over a new epoch", "epoch", f.epoch, "batch", f.seq)
			}
		}
	}
	clear(p.inFlight[len(keep):])
	p.inFlight = keep

	if p.takeOver == nil {
		return
	}
	if p.takeOver.Poll() == engine.Pending {
		return
	}
	p.takeOver = nil
	q.TakeOverEnded(p.takeOverEpoch)
}

// takeOverIfDue proposes the take-over of the next epoch if raft elected this replica, or if a
// batch of the present epoch is undetermined. It returns true if one is due that must be tried
// again.
func (p *proposer) takeOverIfDue() bool {
	s, q := p.s, &p.s.proposals
	x, now, due := q.NextTakeOver()
	if !now {
		return due
	}
	p.takeOverEpoch = x.Epoch
	h := shard.Header{Format: s.cfg.Format(), Epoch: x.Epoch, Seq: 1, Wall: p.wall()}
	if x.Again {
		h.LogTime = s.logTime.stamp()
		s.counters.repeatedTakeOvers.Add(1)
	}
	// A new leader does not stamp: log time stands still until its epoch is applied, and continues
	// from there.
	p.entry = shard.AppendCommand(shard.AppendHeader(p.entry[:0], h), shard.Command{Kind: shard.CmdTakeOver})
	// If entries take longer than the timeout to be applied, each take-over would be followed by
	// the next before it counts. So each further one gets twice the timeout.
	t, err := p.propose(p.entry, s.cfg.ProposeTimeout<<min(x.Late, maxTakeOverDoublings))
	s.counters.takeOvers.Add(1)
	if err != nil {
		q.TakeOverEnded(x.Epoch)
		return true
	}
	p.takeOver = t
	return true
}

func (p *proposer) wall() uint64 { return uint64(p.s.clock.Wall().UnixMilli()) }
