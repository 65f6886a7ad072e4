package metrics

var shards = section("Shards")

// ofShard declares a metric of each shard that has a replica here.
func (s section) ofShard(t Type, name, help string) *Metric {
	return s.row(t, name, help, []string{"shard"}).most(mostShards)
}

var (
	ShardLeading = shards.ofShard(TypeGauge, "signalbox_shard_leading",
		"1 if this instance leads the shard.")
	ShardLeader = shards.ofShard(TypeGauge, "signalbox_shard_leader",
		"Raft replica that leads the shard, as far as is known here; 0 for none.")
	ShardTerm = shards.ofShard(TypeGauge, "signalbox_shard_term",
		"Raft term of the leader. It rises with each election.")
	ShardInFlight = shards.ofShard(TypeGauge, "signalbox_shard_in_flight",
		"Entries proposed and not applied yet.")
	ShardAppliedIndex = shards.ofShard(TypeGauge, "signalbox_shard_applied_index",
		"Index of the last entry applied. Replicas that are behind have a lower one.")
	ShardLogTime = shards.ofShard(TypeGauge, "signalbox_shard_log_time_seconds",
		"The shard's clock, which sessions and waits are measured by.")
	ShardBatches = shards.ofShard(TypeCounter, "signalbox_shard_batches_total",
		"Entries proposed.")
	ShardCommands = shards.ofShard(TypeCounter, "signalbox_shard_commands_total",
		"Commands in the entries proposed.")
	ShardCommandBytes = shards.ofShard(TypeCounter, "signalbox_shard_command_bytes_total",
		"Bytes of the entries proposed.")
	ShardRefused = shards.ofShard(TypeCounter, "signalbox_shard_refused_total",
		"Entries of a former leader that were not applied.")
	ShardDropped = shards.ofShard(TypeCounter, "signalbox_shard_dropped_total",
		"Entries that raft did not take.")
	ShardUndetermined = shards.ofShard(TypeCounter, "signalbox_shard_undetermined_total",
		"Entries whose outcome raft could not tell.")
	ShardTakeovers = shards.ofShard(TypeCounter, "signalbox_shard_takeovers_total",
		"Take-overs that this instance proposed as a new leader.")
	ShardOverloaded = shards.ofShard(TypeCounter, "signalbox_shard_overloaded_total",
		"Commands refused with OVERLOADED because the log is behind.")
	ShardBarriers = shards.ofShard(TypeCounter, "signalbox_shard_barriers_total",
		"Read barriers that succeeded.")
	ShardBarrierFailures = shards.ofShard(TypeCounter, "signalbox_shard_barrier_failures_total",
		"Read barriers that failed.")
	ShardSnapshots = shards.ofShard(TypeCounter, "signalbox_shard_snapshots_total",
		"Snapshots that were saved.")
	ShardWaitingBytes = shards.ofShard(TypeGauge, "signalbox_shard_waiting_bytes",
		"Bytes of commands that wait to be proposed.")
	ShardSessions = shards.ofShard(TypeGauge, "signalbox_shard_sessions",
		"Sessions at home in the shard.")
	ShardRemoteSessions = shards.ofShard(TypeGauge, "signalbox_shard_remote_sessions",
		"Sessions at home elsewhere that hold something in the shard.")
	ShardSemaphores = shards.ofShard(TypeGauge, "signalbox_shard_semaphores",
		"Semaphores.")
	ShardContended = shards.ofShard(TypeGauge, "signalbox_shard_contended_semaphores",
		"Semaphores that somebody waits for.")
	ShardStuckQueues = shards.ofShard(TypeGauge, "signalbox_shard_stuck_queues",
		"Semaphores whose next waiter, by their policy, wants more than the limit: it is never granted, and holds up those behind it.")
	ShardStreams = shards.ofShard(TypeGauge, "signalbox_shard_streams",
		"Open watch streams.")
	ShardWatches = shards.ofShard(TypeGauge, "signalbox_shard_watches",
		"Armed one-shot watches.")
	ShardWatchesFired = shards.ofShard(TypeCounter, "signalbox_shard_watches_fired_total",
		"One-shot watches that fired or became invalid.")
	ShardDeltas = shards.ofShard(TypeCounter, "signalbox_shard_deltas_total",
		"Changes sent to watch streams.")
	ShardStreamsResumed = shards.ofShard(TypeCounter, "signalbox_shard_streams_resumed_total",
		"Streams over one semaphore that got only the changes since the client's last one, and no snapshot.")
	ShardPages = shards.ofShard(TypeCounter, "signalbox_shard_stream_pages_total",
		"Pages of the snapshots of streams over semaphores.")
	ShardStreamsBehind = shards.ofShard(TypeCounter, "signalbox_shard_streams_behind_total",
		"Watch streams that fell behind, and began again with a snapshot.")
	ShardStreamsCut = shards.ofShard(TypeCounter, "signalbox_shard_streams_cut_total",
		"Watch streams that the server ended.")
)

// waits are the bounds of waits and holds: 0 is an acquire that was granted at once. Log time has
// milliseconds.
var waits = []uint64{
	0, ms, 5 * ms, 10 * ms, 50 * ms, 100 * ms, 500 * ms,
	s1, 5 * s1, 10 * s1, 30 * s1, 60 * s1, 300 * s1, 1800 * s1, 3600 * s1,
}

// WaitBounds are the bounds of waits and holds in milliseconds of log time.
func WaitBounds() []uint64 {
	list := make([]uint64, len(waits))
	for i, b := range waits {
		list[i] = b / ms
	}
	return list
}

var coordination = section("Sessions, waits and holds")

var (
	Sessions = coordination.gauge("signalbox_sessions",
		"Sessions at home in the shards that this instance leads.")
	SessionsExpired = coordination.counter("signalbox_sessions_expired_total",
		"Sessions that expired: their keep-alives stopped. The leader of the home shard counts.")
	SessionsEnded = coordination.counter("signalbox_sessions_ended_total",
		"Sessions that ended, by the reason. The leader of the home shard counts.",
		"reason").most(mostReasons)
	LeasesLost = coordination.counter("signalbox_leases_lost_total",
		"Leases that ended without a release by their owner, by the cause. The shard's leader counts.",
		"cause").most(mostReasons)
	LeaseTransfers = coordination.counter("signalbox_lease_transfers_total",
		"Leases that their owners transferred to a waiter of their choice. The shard's leader counts.")
	Preemptions = coordination.counter("signalbox_preemptions_total",
		"Leases that a waiter preempted, by the outcome: the owner released them or its session ended, "+
			"the lease ended at its bound, or it was preempted no more. The shard's leader counts.",
		"outcome").most(mostReasons)
	PreemptedSilent = coordination.gauge("signalbox_preempted_silent",
		"Owners that have not said that they know the bound by which they must yield, which has passed: they keep "+
			"their leases. In the shards that this instance leads.")

	WaitSeconds = coordination.histogram("signalbox_wait_seconds",
		"Waits of acquires in log time, when they end: 0 for one that is granted at once. "+
			"The shard's leader measures. Nodes beyond the cap share the label \"other\".",
		waits, "node").most(ByNames)
	PriorityWaitSeconds = coordination.histogram("signalbox_priority_wait_seconds",
		"Waits of signalbox_wait_seconds by the level of the acquire, of semaphores whose policy is priority.",
		waits, "node", "level").most(ByNames)
	HoldSeconds = coordination.histogram("signalbox_hold_seconds",
		"Time from the grant of a lease to its end, in log time. The shard's leader measures. "+
			"Nodes beyond the cap share the label \"other\".",
		waits, "node").most(ByNames)
	WaitsEnded = coordination.counter("signalbox_waits_ended_total",
		"Queued acquires that ended, by the outcome. The shard's leader counts.",
		"node", "outcome").most(ByNames)

	NodeOldestWait = coordination.gauge("signalbox_node_oldest_wait_seconds",
		"How long the first waiter of a node's oldest queue has waited, in the shards that this "+
			"instance leads.",
		"node").most(ByNames)
	NodeSlowWait = coordination.gauge("signalbox_node_slow_wait_seconds",
		"The node's option slow-wait, of nodes that have it.", "node").most(ByNames)
	NodeUsed = coordination.gauge("signalbox_node_used",
		"What a node uses of a quota, in the shards that this instance leads; of watchers, on this instance.",
		"node", "quota").most(ByNames)
	NodeQuota = coordination.gauge("signalbox_node_quota",
		"A node's quota, if it has one.", "node", "quota").most(ByNames)
	NodeRefused = coordination.counter("signalbox_node_refused_total",
		"Requests that a quota of the node refused. The shard's leader counts, and each instance those "+
			"for watchers and requests.",
		"node", "quota").most(ByNames)
	NodesTruncated = coordination.gauge("signalbox_node_series_truncated",
		"1 if series of nodes were left out over the cap.")

	SemaphoreGrants = coordination.gauge("signalbox_semaphore_grants_per_second",
		"How often a semaphore is granted, of those that are granted most often in the shards that "+
			"this instance leads, as signalbox top estimates it.",
		"node", "semaphore").most(ByNames)
	SemaphoreAcquires = coordination.counter("signalbox_semaphore_acquires_total",
		"Grants of a semaphore since the shard's replica started here, or since the semaphore was "+
			"made: an ephemeral one ends with its last lease, and counts from 0 again. With a "+
			"session: its own, in nodes with detailed counters.",
		"node", "semaphore", "session").most(ByNames)
	SemaphoreWaits = coordination.counter("signalbox_semaphore_waits_total",
		"Acquires that were queued, like signalbox_semaphore_acquires_total.",
		"node", "semaphore", "session").most(ByNames)
	SemaphoreReleases = coordination.counter("signalbox_semaphore_releases_total",
		"Leases that ended, like signalbox_semaphore_acquires_total.",
		"node", "semaphore", "session").most(ByNames)
	SemaphoreOwners = coordination.gauge("signalbox_semaphore_owners",
		"Leases of a semaphore. Semaphores that somebody waits for come first, then those with most "+
			"grants.",
		"node", "semaphore").most(ByNames)
	SemaphoreWaiters = coordination.gauge("signalbox_semaphore_waiters",
		"Queued acquires of a semaphore, in the order of signalbox_semaphore_owners.",
		"node", "semaphore").most(ByNames)
	SemaphoreOldestWait = coordination.gauge("signalbox_semaphore_oldest_wait_seconds",
		"How long the first waiter of a semaphore has waited; 0 without one.",
		"node", "semaphore").most(ByNames)
	SemaphoreStuck = coordination.gauge("signalbox_semaphore_stuck",
		"1: the next waiter, by the policy, wants more than the limit: it is never granted, and holds up those behind it.",
		"node", "semaphore").most(ByNames)
	SemaphoreSlots = coordination.gauge("signalbox_semaphore_slots",
		"Slots of a semaphore whose units have names, by state: free, held, draining and leaving, which "+
			"are held and not granted again, and drained.",
		"node", "semaphore", "state").most(ByNames)
	SemaphoresTruncated = coordination.gauge("signalbox_semaphore_series_truncated",
		"1 if series of semaphores were left out over the cap.")
)

var processes = section("Coordination processes")

var (
	Processes = processes.gauge("signalbox_processes",
		"Coordination processes, by phase. One that stays preparing waits for a member.",
		"shard", "phase").most(mostShards * mostStates)
	ProcessMembers = processes.ofShard(TypeGauge, "signalbox_process_members",
		"Members, with absent ones that keep a place by their key.")
	ProcessRoundsStarted = processes.ofShard(TypeCounter, "signalbox_process_rounds_started_total",
		"Rounds that started.")
	ProcessRoundsEnded = processes.counter("signalbox_process_rounds_ended_total",
		"Rounds that ended, by outcome: completed; cancelled; failed, and tried again.",
		"shard", "outcome").most(mostShards * mostStates)
	ProcessRoundSeconds = processes.histogram("signalbox_process_round_seconds",
		"Duration of rounds in log time. The shard's leader measures.", rounds)
	ProcessPrepareSeconds = processes.histogram("signalbox_process_prepare_seconds",
		"How long members took to prepare, in log time. The shard's leader measures.", rounds)
	ProcessJoins = processes.ofShard(TypeCounter, "signalbox_process_joins_total",
		"Members that joined.")
	ProcessLeaves = processes.ofShard(TypeCounter, "signalbox_process_leaves_total",
		"Members that left.")
	ProcessReturns = processes.ofShard(TypeCounter, "signalbox_process_returns_total",
		"Members that came back by their key without a round.")
	ProcessUndelivered = processes.ofShard(TypeCounter, "signalbox_process_undelivered_total",
		"Events not sent because the member's connection had much to read; they come again.")
	ProcessRequests = processes.ofShard(TypeCounter, "signalbox_process_requests_total",
		"Messages between members; each receiver counts.")
	ProcessRepeated = processes.ofShard(TypeCounter, "signalbox_process_requests_repeated_total",
		"Messages delivered again: unanswered, or on a new connection.")
	ProcessOverflowed = processes.ofShard(TypeCounter, "signalbox_process_requests_overflowed_total",
		"Messages refused because too many are unanswered.")
	ProcessStale = processes.ofShard(TypeCounter, "signalbox_process_messages_stale_total",
		"Messages of rounds that are over.")
	ProcessReplies = processes.ofShard(TypeCounter, "signalbox_process_replies_total",
		"Replies of members to each other.")
	ProcessRepliesRefused = processes.ofShard(TypeCounter, "signalbox_process_replies_refused_total",
		"Messages that the receiver's handler refused.")
	ProcessPending = processes.ofShard(TypeGauge, "signalbox_process_requests_pending",
		"Messages between members that are unanswered.")
	ProcessPendingBytes = processes.ofShard(TypeGauge, "signalbox_process_requests_pending_bytes",
		"Bytes of unanswered messages between members.")
)

var rollouts = section("Rollouts")

// ofLocation declares a metric of each location of a track.
func (s section) ofLocation(name, help string) *Metric {
	return s.gauge(name, help, "node", "track", "location").most(ByNames)
}

var (
	RolloutTarget = rollouts.ofLocation("signalbox_rollout_target",
		"The version that the location is to have.")
	RolloutTargetAge = rollouts.ofLocation("signalbox_rollout_target_age_seconds",
		"How long the location has had its target.")
	RolloutLag = rollouts.ofLocation("signalbox_rollout_lag_seconds",
		"How long the location has lacked what the first location has.")
	RolloutLeaders = rollouts.ofLocation("signalbox_rollout_leaders",
		"Instances that must have the target.")
	RolloutConverged = rollouts.ofLocation("signalbox_rollout_converged",
		"Instances that must have the target and have it.")
	RolloutMembers = rollouts.ofLocation("signalbox_rollout_members",
		"Instances of the location.")
	RolloutBlocked = rollouts.ofLocation("signalbox_rollout_blocked_seconds",
		"How long an instance has been behind; 0 if none is.")
	RolloutEmpty = rollouts.ofLocation("signalbox_rollout_empty",
		"1 if the location has no instance that counts.")
	RolloutStalled = rollouts.ofLocation("signalbox_rollout_stalled",
		"1 if the location is stalled.")
	RolloutReelectionPending = rollouts.ofLocation("signalbox_rollout_reelection_pending",
		"1 while the location is about to get another target.")
	RolloutBlockedBy = rollouts.gauge("signalbox_rollout_blocked_by",
		"1 for each of the first ten instances that are behind.",
		"node", "track", "location", "blocker").most(ByNames)
	RolloutTargets = rollouts.counter("signalbox_rollout_targets_total",
		"Targets that were set, by the reason. Watch rollback and those that begin with reelect.",
		"node", "track", "location", "reason").most(ByNames)
	RolloutPolls = rollouts.counter("signalbox_rollout_polls_total",
		"Polls of tracks, by path: read from memory, or log.",
		"shard", "path").most(mostShards * mostListeners)
	RolloutsTruncated = rollouts.gauge("signalbox_rollout_series_truncated",
		"1 if series of rollouts were left out over the cap.")
)

var rateLimits = section("Rate limits")

// ofLeaf declares a metric of each resource without children.
func (s section) ofLeaf(t Type, name, help string) *Metric {
	return s.row(t, name, help, []string{"node", "resource"}).most(ByNames)
}

var (
	LimitRefreshes = rateLimits.ofShard(TypeCounter, "signalbox_limit_refreshes_total",
		"Refreshes of leases: three per lease of each session, and more when demands change.")
	LimitAcquires = rateLimits.ofShard(TypeCounter, "signalbox_limit_remote_acquires_total",
		"Calls that asked the leader for units, because there are few for many clients.")
	LimitNotifications = rateLimits.ofShard(TypeCounter, "signalbox_limit_notifications_total",
		"Sessions that were asked to refresh at once.")
	LimitLearning = rateLimits.ofShard(TypeGauge, "signalbox_limit_learning_seconds",
		"How long a new leader has been waiting to know who uses what; the longest of any tree. Nobody gets more meanwhile.")
	LimitUnconfirmed = rateLimits.ofShard(TypeGauge, "signalbox_limit_unconfirmed_shrinks",
		"Leases that are to be smaller, and that sessions have not confirmed yet. Others wait for their rates.")
	LimitRate = rateLimits.ofLeaf(TypeGauge, "signalbox_limit_rate",
		"The resource's limit, in units per second.")
	LimitLeasedRate = rateLimits.ofLeaf(TypeGauge, "signalbox_limit_leased_rate",
		"What its sessions have, in units per second.")
	LimitCountedRate = rateLimits.ofLeaf(TypeGauge, "signalbox_limit_counted_rate",
		"What sessions may still use, in units per second: leased, and not yet given back.")
	LimitAllowed = rateLimits.ofLeaf(TypeCounter, "signalbox_limit_allowed_total",
		"Units that were used, as sessions reported them to this leader.")
	LimitDenied = rateLimits.ofLeaf(TypeCounter, "signalbox_limit_denied_total",
		"Units that were refused. In shadow mode they were used as well.")
	LimitWaited = rateLimits.ofLeaf(TypeCounter, "signalbox_limit_waited_total",
		"Units that were used after a wait.")
	LimitImpossible = rateLimits.ofLeaf(TypeCounter, "signalbox_limit_impossible_total",
		"Units of calls that can never be admitted: they are above the burst, or the rate is 0.")
	LimitLacking = rateLimits.ofLeaf(TypeGauge, "signalbox_limit_lacking_sessions",
		"Sessions whose calls wait or are denied. `signalbox limit describe` says why, and what would change it.")
	LimitLackingTime = rateLimits.ofLeaf(TypeGauge, "signalbox_limit_lacking_seconds",
		"For how long, of the session for which it is longest.")
	LimitsTruncated = rateLimits.gauge("signalbox_limit_series_truncated",
		"1 if series of rate limits were left out over the cap.")
)
