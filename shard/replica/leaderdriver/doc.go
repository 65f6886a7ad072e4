// Package leaderdriver drives the work of a shard's leader besides applying the log. A [Driver]
// begins and ends the leadership of its parts in log order, and wakes each on a goroutine of its
// own: by its alarm, and at the time that it asked for. So a part keeps no timer, and asks nobody
// whether it still leads.
//
//	Leader      sessions, log time, messages to other shards: around [leader.Leader]
//	Members     messages between members of coordination processes: around [leader.Processes]
//	RateLimits  leases of rate limits: around [leader.RateLimits]
//
// Each part knows its replica by a small interface.
package leaderdriver
