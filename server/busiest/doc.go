// Package busiest keeps what an instance is busiest with, in memory that does not grow: the
// semaphores granted most often, the instance's own rates and latencies, and the load that it led
// in the last quarter of an hour.
//
//	var g busiest.Grants
//	g.Count(now, events.SemaphoreChanges) // for each log entry, where the shard is led
//	g.Top(now, 20, allowed)
//
// It has no clock: callers pass monotonic times. All of it is soft state, which begins again with
// the process, and with a leadership.
//
// Grants are estimated. A semaphore that is granted without a counter takes the one with the least
// weight. The inherited weight is not shown, so a rate is never too high by it. A semaphore with
// more than 1 of 256 grants keeps its counter. Of a large log entry at most 32 changes are sampled,
// each for its neighbours. Followers count nothing, so a new leader needs some seconds to know the
// rates.
package busiest
