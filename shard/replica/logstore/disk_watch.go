package logstore

import (
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

// maintain writes the watermark and checks the free space: a period after the log is written, and
// else now and then.
func (s *Store) maintain() {
	idle, soon := time.NewTimer(beat.Next(idlePeriod)), time.NewTimer(period)
	defer idle.Stop()
	defer soon.Stop()
	var low bool
	if sp := s.space.last.Load(); sp != nil {
		low = sp.Low() // it was low at the start, and that was reported
	}
	for {
		select {
		case <-s.stopC:
			return
		case <-idle.C:
		case <-s.dirtied:
			soon.Reset(period)
			select {
			case <-s.stopC:
				return
			case <-soon.C:
			}
		}
		idle.Reset(beat.Next(idlePeriod))
		s.maintaining.Store(int64(time.Since(s.began)) | 1)
		if sp, ok := s.space.look(); ok {
			switch {
			case sp.full():
				s.report(fullError(sp))
			case sp.Low() && !low:
				low = true
				if s.cfg.Low != nil {
					go s.cfg.Low(sp)
				}
			case sp.Ample():
				low = false
			}
		}
		s.mu.Lock()
		dirty := s.dirty
		s.mu.Unlock()
		if dirty {
			_ = s.writeMarks(false) // the next round retries: an old mark is still true
		}
		s.maintaining.Store(0)
	}
}

// watchStuck reports a write that does not finish, as soon as it has taken too long. It sleeps
// until the oldest write under way has, or one that begins now would have: a write that begins
// meanwhile is younger.
func (s *Store) watchStuck() {
	t := time.NewTimer(s.cfg.Stuck)
	defer t.Stop()
	for {
		select {
		case <-s.stopC:
			return
		case <-t.C:
		}
		d := s.Waiting()
		if d > s.cfg.Stuck {
			s.report(fmt.Errorf("%w: one has been under way for %v, longer than %v; look at the disk, then start again",
				ErrStuck, d.Round(time.Second), s.cfg.Stuck))
			return
		}
		t.Reset(max(s.cfg.Stuck-d, time.Millisecond))
	}
}

// Waiting returns the age of the oldest unfinished write, or 0. It is safe for concurrent use.
func (s *Store) Waiting() (d time.Duration) {
	now := time.Since(s.began)
	for _, since := range [...]int64{s.saving.Load(), s.maintaining.Load()} {
		if since != 0 {
			d = max(d, now-time.Duration(since))
		}
	}
	return d
}

// Space returns the free space at the last check; ok is false if the disk does not report it. It is
// safe for concurrent use.
func (s *Store) Space() (Space, bool) {
	if sp := s.space.last.Load(); sp != nil {
		return *sp, true
	}
	return Space{}, false
}
