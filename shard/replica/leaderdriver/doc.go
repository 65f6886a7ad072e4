// Package leaderdriver drives the step machine of a shard's leader, [leader.Leader]: it queues the
// calls in the order in which they come, makes them on a goroutine of its own, and carries out what
// the leader wants done. It knows its replica by a small interface.
package leaderdriver
