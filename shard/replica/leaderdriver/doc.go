// Package leaderdriver drives what the leader of a shard does besides applying the log. A [Driver]
// begins and ends the leadership of its parts in log order, and wakes each on a goroutine of its
// own: by its alarm, and when it said that something will be due. So a part keeps no timer, and
// asks nobody whether it still leads.
//
//	Leader      sessions, log time, messages to other shards: around [leader.Leader]
//	Members     messages between members of coordination processes: around [leader.Processes]
//	RateLimits  leases of rate limits: around [leader.RateLimits]
//
// Each part knows its replica by a small interface.
package leaderdriver
