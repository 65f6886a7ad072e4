package shard

import "github.com/signalbox-dev/signalbox/protocol"

// Times measures what happened in one coordination node since this machine was made or restored:
// how long acquires waited and leases were held, in log time. Like counters they serve the metrics
// alone: they are not part of the state, and in no snapshot.
type Times struct {
	Waits Durations            // each acquire that ended, 0 for one that was granted at once
	Holds Durations            // each lease that ended
	Ended [waitOutcomes]uint64 // queued acquires that ended, by WaitOutcome
}

// WaitOutcome is how a queued acquire ended.
type WaitOutcome uint8

// The outcomes.
const (
	WaitGranted  WaitOutcome = iota
	WaitTimedOut             // its timeout passed
	WaitAborted              // its session ended, released or replaced it, or the semaphore was deleted

	waitOutcomes = iota
)

// LossCause is why a lease ended that its owner did not give back.
type LossCause uint8

// The causes. Of a session whose home is another shard it is only known that it ended.
const (
	LostExpired LossCause = iota
	LostKilled
	LostNodeDropped
	LostForceReleased
	LostDeleted
	LostSessionEnded
	LostMaxHold
	LostPreempted

	lossCauses = iota
)

// timeBounds are the upper bounds of the buckets of Durations, in ms. One bucket more is for what
// is longer.
var timeBounds = [...]uint64{0, 1, 5, 10, 50, 100, 500, 1_000, 5_000,
	10_000, 30_000, 60_000, 300_000, 1_800_000, 3_600_000}

// TimeBounds are the upper bounds of the buckets of Durations, in ms.
func TimeBounds() []uint64 { return timeBounds[:] }

// Durations counts durations by size.
type Durations struct {
	Counts [len(timeBounds) + 1]uint64
	Sum    uint64 // ms
}

func (d *Durations) add(ms uint64) {
	i := 0
	for i < len(timeBounds) && ms > timeBounds[i] { // most are short
		i++
	}
	d.Counts[i]++
	d.Sum += ms
}

// LevelWaits are the waits of Times by the level of the acquire, of semaphores whose policy is
// priority.
type LevelWaits [protocol.MaxPriority + 1]Durations

// measure is where a node's times are counted.
func (n *node) measure() *Times {
	if n.times == nil {
		n.times = new(Times)
	}
	return n.times
}

// elapsed is how long an entry has waited, or has been held, in ms of log time. Of an entry that
// was restored, or moved here, only the wall clock of its beginning is known.
func (c *clock) elapsed(e *entry) uint64 {
	if e.began != 0 {
		return c.logTime - min(e.began, c.logTime)
	}
	return c.wall - min(e.since, c.wall)
}

// waited counts the wait of an acquire, and returns where.
func (e *entry) waited(ms uint64) *Times {
	n := e.semaphore.node
	t := n.measure()
	t.Waits.add(ms)
	if q := e.semaphore.queue(); q != nil && q.Policy() == protocol.PolicyPriority {
		if n.levelWaits == nil {
			n.levelWaits = new(LevelWaits)
		}
		level, _ := q.level(e)
		n.levelWaits[level].add(ms)
	}
	return t
}

// waitEnded measures the wait of a queued acquire that ends now. The entry is in the queue still.
func (e *entry) waitEnded(m *Machine, outcome WaitOutcome) {
	waited := m.elapsed(e)
	e.waited(waited).Ended[outcome]++
	if slow := e.semaphore.node.config.SlowWait; slow != 0 && waited > slow {
		emitSlowWait(m, e, waited, outcome)
	}
}

// holdEnded measures the hold of a lease that ends now.
func (e *entry) holdEnded(m *Machine) {
	t, p := e.semaphore.node.measure(), e.session
	t.Holds.add(m.elapsed(e))
	if p.ended {
		if cause, lost := lossCause(p); lost {
			m.lost[cause]++
		}
	}
	if e.semaphore.node.config.SlowWait != 0 && e.semaphore.waiters.n > 0 {
		m.formerOwners.keep(e.semaphore, slowOwner(m, e), m.logTime)
	}
}

// lossCause is why an ended session lost its leases; false: it stopped at its client's wish.
func lossCause(p *sessionRecord) (LossCause, bool) {
	switch {
	case p.node.dropped:
		return LostNodeDropped, true
	case p.endReason == protocol.EndExpired:
		return LostExpired, true
	case p.endReason == protocol.EndKilled:
		return LostKilled, true
	case p.endReason == protocol.EndNodeDropped:
		return LostNodeDropped, true
	case p.endReason == protocol.EndStopped:
		return 0, false
	}
	return LostSessionEnded, true
}
