package monitoring

import m "github.com/signalbox-dev/signalbox/server/metrics"

// coordination is the page of those whose programs use signalbox: waits, holds and queues.
func coordination() dashboard {
	return dashboard{
		uid: "signalbox-coordination", title: "signalbox: coordination", nodes: true,
		about: "Waits, holds, queues, holders, limits, rollouts and processes. Names are missing while authentication is on, unless --metrics-names on shows them.",
		rows: []row{
			{"Waits and holds", []panel{
				{title: "Wait for an acquire", help: "Until the grant, or the end of the wait; 0 for a grant at once. In log time.", unit: unitSeconds,
					queries: []query{{quantile(0.5, m.WaitSeconds, "node"), "{{node}} p50"}, {quantile(0.99, m.WaitSeconds, "node"), "{{node}} p99"}}},
				{title: "Hold", help: "From the grant of a lease to its end.", unit: unitSeconds,
					queries: []query{{quantile(0.5, m.HoldSeconds, "node"), "{{node}} p50"}, {quantile(0.99, m.HoldSeconds, "node"), "{{node}} p99"}}},
				{title: "Acquires", help: "All that ended, and those that had to wait, by their outcome.", unit: unitPerSec,
					queries: []query{{perSecond(m.WaitSeconds), "all"}, {perSecond(m.WaitsEnded, "outcome"), "waited: {{outcome}}"}}},
			}},
			{"Queues", []panel{
				{title: "Waiters by node", help: "Acquires that are queued.", unit: unitNone, queries: []query{{grouped("sum", []string{"node"}, series(m.NodeUsed, "", `quota="waiters"`)), "{{node}}"}}},
				{title: "Oldest wait by node", help: "A standby of an elected leader waits forever, and should. Elsewhere set the node's slow-wait: an alert compares.", unit: unitSeconds,
					queries: []query{{orZero(most(m.NodeOldestWait, "node")), "{{node}}"}}},
				{title: "Contended semaphores", help: "Semaphores that somebody waits for, and queues that cannot move: their first waiter wants more than the limit.", unit: unitNone,
					queries: []query{{now(m.ShardContended), "contended"}, {most(m.ShardStuckQueues), "stuck"}}},
				{title: "Longest queues", help: "Semaphores with most waiters.", unit: unitNone, queries: []query{{top(10, most(m.SemaphoreWaiters, "node", "semaphore")), "{{node}} {{semaphore}}"}}},
				{title: "Oldest waits", help: "Semaphores whose first waiter has waited longest. signalbox sem why says for whom.", unit: unitSeconds,
					queries: []query{{top(10, most(m.SemaphoreOldestWait, "node", "semaphore")), "{{node}} {{semaphore}}"}}},
				{title: "Most granted", help: "Semaphores with most grants.", unit: unitPerSec,
					queries: []query{{top(10, grouped("max", []string{"node", "semaphore"}, "rate("+series(m.SemaphoreAcquires, "", `session=""`)+"["+rateVariable+"])")), "{{node}} {{semaphore}}"}}},
			}},
			{"Holders", []panel{
				{title: "Most leases", help: "Semaphores with most owners.", unit: unitNone, queries: []query{{top(10, most(m.SemaphoreOwners, "node", "semaphore")), "{{node}} {{semaphore}}"}}},
				{title: "Sessions", help: "Sessions of the cluster, and how they end.", unit: unitNone, queries: []query{{now(m.Sessions), "sessions"}}},
				{title: "Ends of sessions", help: "Expired: keep-alives stopped. A burst is a crashed service or a network that is cut.", unit: unitPerSec,
					queries: []query{{perSecond(m.SessionsExpired), "expired"}, {perSecond(m.SessionsEnded, "reason"), "{{reason}}"}}},
				{title: "Leases lost", help: "Leases that ended without a release by their owner. Of a session whose home is another shard it is only known that it ended.", unit: unitPerSec,
					queries: []query{{perSecond(m.LeasesLost, "cause"), "{{cause}}"}}},
			}},
			{"Limits", []panel{
				{title: "Quotas used", help: "Of each node, the quota that is fullest.", unit: unitRatio,
					queries: []query{{grouped("max", []string{"node"}, now(m.NodeUsed, "node", "quota")+" / "+most(m.NodeQuota, "node", "quota")), "{{node}}"}}},
				{title: "Refused by quotas", help: "Requests that a quota refused.", unit: unitPerSec, queries: []query{{perSecond(m.NodeRefused, "node", "quota"), "{{node}} {{quota}}"}}},
				{title: "Semaphores", help: "Semaphores of the cluster: the highest number of each shard's replicas.", unit: unitNone, queries: []query{{"sum(" + most(m.ShardSemaphores, "shard") + ")", "semaphores"}}},
			}},
			{"Watches", []panel{
				{title: "Watches", help: "Open streams, and armed one-shot watches.", unit: unitNone, queries: []query{{now(m.ShardStreams), "streams"}, {now(m.ShardWatches), "one-shot"}}},
				{title: "Changes sent", help: "Changes to streams, and one-shot watches that fired.", unit: unitPerSec, queries: []query{{perSecond(m.ShardDeltas), "changes"}, {perSecond(m.ShardWatchesFired), "fired"}}},
				{title: "Streams behind", help: "Streams that fell behind and began again, and those that the server ended.", unit: unitPerSec,
					queries: []query{{perSecond(m.ShardStreamsBehind), "behind"}, {perSecond(m.ShardStreamsCut), "cut"}}},
			}},
			{"Processes", []panel{
				{title: "Processes by phase", help: "One that stays preparing waits for a member.", unit: unitNone, queries: []query{{grouped("sum", []string{"phase"}, most(m.Processes, "shard", "phase")), "{{phase}}"}}},
				{title: "Rounds", help: "Rounds that ended, by outcome. Each replica counts; the highest rate is shown.", unit: unitPerSec,
					queries: []query{{grouped("max", []string{"outcome"}, perSecond(m.ProcessRoundsEnded, "instance", "outcome")), "{{outcome}}"}}},
				{title: "Rounds measured", help: "Rounds that the shards' leaders measured, and of them those with a time to prepare.", unit: unitPerSec,
					queries: []query{{perSecond(m.ProcessRoundSeconds), "rounds"}, {perSecond(m.ProcessPrepareSeconds), "prepared"}}},
			}},
			{"Rollouts", []panel{
				{title: "Behind the first location", help: "How long a location has lacked what the first one has.", unit: unitSeconds, queries: []query{{top(10, most(m.RolloutLag, "track", "location")), "{{track}} {{location}}"}}},
				{title: "Blocked", help: "How long an instance of the location has been behind its target.", unit: unitSeconds, queries: []query{{top(10, most(m.RolloutBlocked, "track", "location")), "{{track}} {{location}}"}}},
				{title: "Polls", help: "Polls of instances: read from memory, or put into the log.", unit: unitPerSec, queries: []query{{perSecond(m.RolloutPolls, "path"), "{{path}}"}}},
			}},
		},
	}
}
