// Package busiest keeps what an instance is busiest with, in memory that does not grow: the
// semaphores that are granted most often, the instance's own rates and latencies, and what it led in
// the last quarter of an hour.
//
//	var g busiest.Grants
//	g.Count(now, events.SemaphoreChanges) // for each log entry, where the shard is led
//	g.Top(now, 20, allowed)
//
// It has no clock: callers pass monotonic times. All of it is soft state, which begins again with
// the process, and with a leadership.
package busiest
