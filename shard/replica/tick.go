package replica

import (
	"time"

	"github.com/lni/dragonboat/v4"

	"github.com/signalbox-dev/signalbox/shard"
)

// tick is called by the host every 100 ms.
func (s *Shard) tick(now time.Duration) {
	s.barriers.refreshIfDue(now)
	s.requestSnapshot()
	s.tasks.Tick()
}

func (s *Shard) requestSnapshot() {
	if !s.logTail.snapshotDue(s.clock) {
		return
	}
	// The outcome does not matter: if none is saved, the next one is requested later.
	err := s.host.engine.Do(func(nh *dragonboat.NodeHost) error {
		_, err := nh.RequestSnapshot(s.cfg.ID, dragonboat.SnapshotOption{
			OverrideCompactionOverhead: true, CompactionOverhead: uint64(s.logTail.entries.Load()) / 2,
		}, time.Minute)
		return err
	})
	if err != nil {
		s.log.Debug("snapshot skipped", "error", err)
	}
}

// startTick wakes the leader's goroutine. Wait returns when the consequences are applied, within
// five seconds of real time; if there are none and it is not thorough, at once.
func (s *Shard) startTick() (wait func(thorough bool)) {
	s.barriers.refreshIfDue(s.clock.Now())
	s.requestSnapshot()
	done := make(chan struct{})
	s.tasks.TickWith(done)
	return func(thorough bool) {
		<-done
		if thorough {
			s.awaitQuiet(quietTimeout)
			return
		}
		for end := time.Now().Add(quietTimeout); !s.quiet() &&
			time.Now().Before(end); time.Sleep(20 * time.Microsecond) {
			s.tasks.WakeIfQueued()
		}
	}
}

func (s *Shard) appliedEntries() uint64 { return s.counters.applied.Load() }

func (s *Shard) eventEntries() uint64 { return s.counters.eventEntries.Load() }

// due is the time until the next deadline; 0 also if log time is paused or unknown.
func (s *Shard) due() (in time.Duration, has bool) {
	var next uint64
	s.View(func(m *shard.Machine) { next, has = m.NextDeadline() })
	now, moving := s.logTime.read()
	moving = moving && s.Leading()
	if !has && moving {
		return 0, false
	}
	if !moving || next <= now {
		return 0, true
	}
	return time.Duration(next-now) * time.Millisecond, true
}

// skipTime moves log time, and nothing else that the leader uses.
func (s *Shard) skipTime(d time.Duration) {
	s.tasks.SkipTime(uint64(d / time.Millisecond))
}

// quiet reports whether nothing is queued in this replica. It may miss work that is being handed on
// at this moment.
func (s *Shard) quiet() bool { return s.proposals.Empty() && s.tasks.Idle() && s.barriers.empty() }

// awaitQuiet waits until nothing is queued in this replica.
func (s *Shard) awaitQuiet(most time.Duration) bool {
	end := time.Now().Add(most)
	for quiet := 0; time.Now().Before(end); {
		s.tasks.WakeIfQueued()
		if s.quiet() {
			if quiet++; quiet == 2 {
				return true
			}
		} else {
			quiet = 0
		}
		time.Sleep(200 * time.Microsecond)
	}
	return false
}
