package leader

// stamps decides when a tick is due: a batch that is proposed for no other reason than to stamp the
// log with the time.
type stamps struct {
	since   uint64 // the leadership began
	at      uint64 // of the last tick
	stamp   uint64 // log time of the last tick
	ticked  bool
	skipped bool // SkipTime was called since the last tick
}

// due notes a tick if one is due, for a machine whose next deadline is at this log time. If the
// deadline is still due after a tick, one Apply could not expire all, and ticks are paced.
//
// A pending deadline needs a tick now and then too: a new leader continues from the logged time, so
// unlogged time is lost for timers. A young leader logs more often, because another change may
// follow. So only a small part of its time is lost, and timers end however often leaders change.
func (s *stamps) due(c *clock, deadline uint64) bool {
	now := c.now()
	if now < deadline {
		every := min(MaxStampInterval, max(MinStampInterval, (c.seen-s.since)/StampIntervalDivisor))
		if !s.skipped && c.seen-s.at < every {
			return false
		}
	} else if s.ticked && deadline <= s.stamp && c.seen-s.at < minTickInterval {
		return false
	}
	s.ticked, s.at, s.stamp, s.skipped = true, c.seen, now, false
	return true
}
