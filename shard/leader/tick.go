package leader

// ticks decides when a batch is proposed for no other reason than to log the time.
type ticks struct {
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
func (t *ticks) due(c *clock, deadline uint64) bool {
	now := c.now()
	if now < deadline {
		every := min(MaxStampInterval, max(MinStampInterval, (c.seen-t.since)/StampIntervalDivisor))
		if !t.skipped && c.seen-t.at < every {
			return false
		}
	} else if t.ticked && deadline <= t.stamp && c.seen-t.at < minTickInterval {
		return false
	}
	t.ticked, t.at, t.stamp, t.skipped = true, c.seen, now, false
	return true
}
