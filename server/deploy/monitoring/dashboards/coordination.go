package main

import m "github.com/signalbox-dev/signalbox/server/metrics"

// coordination is the page of those whose programs use signalbox: waits, holds and queues.
func coordination() dashboard {
	return dashboard{
		uid: "signalbox-coordination", title: "signalbox: coordination", nodes: true,
		about: "Waits, holds, queues, holders, limits, rollouts and processes. " +
			"Names are missing while authentication is on, unless --metrics-names on shows them.",
		rows: []row{
			{"Waits and holds", []panel{
				graph("Wait for an acquire", unitSeconds,
					"Until the grant, or the end of the wait; 0 for a grant at once. In log time.",
					query{quantile(0.5, m.WaitSeconds, "node"), "{{node}} p50"},
					query{quantile(0.99, m.WaitSeconds, "node"), "{{node}} p99"}),
				graph("Hold", unitSeconds,
					"From the grant of a lease to its end.",
					query{quantile(0.5, m.HoldSeconds, "node"), "{{node}} p50"},
					query{quantile(0.99, m.HoldSeconds, "node"), "{{node}} p99"}),
				graph("Acquires", unitPerSec,
					"All that ended, and those that had to wait, by their outcome.",
					query{perSecond(m.WaitSeconds), "all"},
					query{perSecond(m.WaitsEnded, "outcome"), "waited: {{outcome}}"}),
			}},
			{"Queues", []panel{
				graph("Waiters by node", unitNone,
					"Acquires that are queued.",
					query{grouped("sum", []string{"node"}, series(m.NodeUsed, "", `quota="waiters"`)), "{{node}}"}),
				graph("Oldest wait by node", unitSeconds,
					"A standby of an elected leader waits forever, and should. "+
						"Elsewhere set the node's slow-wait: an alert compares.",
					query{orZero(most(m.NodeOldestWait, "node")), "{{node}}"}),
				graph("Contended semaphores", unitNone,
					"Semaphores that somebody waits for, and queues that cannot move: "+
						"their first waiter wants more than the limit.",
					query{now(m.ShardContended), "contended"}, query{most(m.ShardStuckQueues), "stuck"}),
				graph("Longest queues", unitNone,
					"Semaphores with most waiters.",
					query{top(10, most(m.SemaphoreWaiters, "node", "semaphore")), "{{node}} {{semaphore}}"}),
				graph("Oldest waits", unitSeconds,
					"Semaphores whose first waiter has waited longest. "+
						"signalbox sem why says for whom.",
					query{top(10, most(m.SemaphoreOldestWait, "node", "semaphore")), "{{node}} {{semaphore}}"}),
				graph("Most granted", unitPerSec,
					"Semaphores with most grants, as signalbox top estimates them.",
					query{top(10, most(m.SemaphoreGrants, "node", "semaphore")), "{{node}} {{semaphore}}"}),
			}},
			{"Holders", []panel{
				graph("Wanted leases", unitPerSec,
					"Leases whose units a waiter wanted back: released, ended at the bound, or wanted no more. "+
						"Silent are owners that have not answered.",
					query{perSecond(m.Wanted, "outcome"), "{{outcome}}"}, query{now(m.WantedSilent), "silent"}),
				graph("Most leases", unitNone,
					"Semaphores with most owners.",
					query{top(10, most(m.SemaphoreOwners, "node", "semaphore")), "{{node}} {{semaphore}}"}),
				graph("Sessions", unitNone,
					"Sessions of the cluster, and how they end.",
					query{now(m.Sessions), "sessions"}),
				graph("Ends of sessions", unitPerSec,
					"Expired: keep-alives stopped. "+
						"A burst is a crashed service or a network that is cut.",
					query{perSecond(m.SessionsExpired), "expired"},
					query{perSecond(m.SessionsEnded, "reason"), "{{reason}}"}),
				graph("Leases lost", unitPerSec,
					"Leases that ended without a release by their owner. "+
						"Of a session whose home is another shard it is only known that it ended.",
					query{perSecond(m.LeasesLost, "cause"), "{{cause}}"}),
			}},
			{"Limits", []panel{
				graph("Quotas used", unitRatio,
					"Of each node, the quota that is fullest. Without that of watchers: "+
						"each replica counts and admits its own.",
					query{
						grouped("max", []string{"node"},
							grouped("sum", []string{"node", "quota"}, series(m.NodeUsed, "", `quota!="watchers"`))+" / "+
								grouped("max", []string{"node", "quota"}, series(m.NodeQuota, "", `quota!="watchers"`))),
						"{{node}}",
					}),
				graph("Refused by quotas", unitPerSec,
					"Requests that a quota refused.",
					query{perSecond(m.NodeRefused, "node", "quota"), "{{node}} {{quota}}"}),
				graph("Semaphores", unitNone,
					"Semaphores of the cluster: the highest number of each shard's replicas.",
					query{"sum(" + most(m.ShardSemaphores, "shard") + ")", "semaphores"}),
			}},
			{"Watches", []panel{
				graph("Watches", unitNone,
					"Open streams, and armed one-shot watches.",
					query{now(m.ShardStreams), "streams"}, query{now(m.ShardWatches), "one-shot"}),
				graph("Changes sent", unitPerSec,
					"Changes to streams, and one-shot watches that fired.",
					query{perSecond(m.ShardDeltas), "changes"},
					query{perSecond(m.ShardWatchesFired), "fired"}),
				graph("Streams behind", unitPerSec,
					"Streams that fell behind and began again, and those that the server ended.",
					query{perSecond(m.ShardStreamsBehind), "behind"},
					query{perSecond(m.ShardStreamsResumed), "resumed"},
					query{perSecond(m.ShardPages), "snapshot pages"},
					query{perSecond(m.ShardStreamsCut), "cut"}),
			}},
			{"Processes", []panel{
				graph("Processes by phase", unitNone,
					"One that stays preparing waits for a member.",
					query{grouped("sum", []string{"phase"}, most(m.Processes, "shard", "phase")), "{{phase}}"}),
				graph("Rounds", unitPerSec,
					"Rounds that ended, by outcome. Each replica counts; the highest rate of each shard is shown.",
					query{
						grouped("sum", []string{"outcome"},
							grouped("max", []string{"shard", "outcome"}, rate(series(m.ProcessRoundsEnded, "")))),
						"{{outcome}}",
					}),
				graph("Rounds measured", unitPerSec,
					"Rounds that the shards' leaders measured, and of them those with a time to "+
						"prepare.",
					query{perSecond(m.ProcessRoundSeconds), "rounds"},
					query{perSecond(m.ProcessPrepareSeconds), "prepared"}),
			}},
			{"Rollouts", []panel{
				graph("Behind the first location", unitSeconds,
					"How long a location has lacked what the first one has.",
					query{top(10, most(m.RolloutLag, "track", "location")), "{{track}} {{location}}"}),
				graph("Blocked", unitSeconds,
					"How long an instance of the location has been behind its target.",
					query{top(10, most(m.RolloutBlocked, "track", "location")), "{{track}} {{location}}"}),
				graph("Polls", unitPerSec,
					"Polls of instances: read from memory, or put into the log.",
					query{perSecond(m.RolloutPolls, "path"), "{{path}}"}),
			}},
		},
	}
}
