package metrics

var cluster = section("Cluster")

var (
	ClusterHealth = cluster.gauge("signalbox_cluster_health",
		"1 for the state of the cluster as this instance sees it.", "state").most(mostStates)
	GroupsUnavailable = cluster.gauge("signalbox_raft_groups_unavailable",
		"Shards, the meta shard with them, without a majority or a leader.")
	GroupsAtRisk = cluster.gauge("signalbox_raft_groups_at_risk",
		"Shards, the meta shard with them, that may lose less than is configured.")
	InstanceUnreachable = cluster.gauge("signalbox_instance_unreachable",
		"1 for an instance that this one does not reach, by its name.", "name").most(mostInstances)
	MissingCopies = cluster.gauge("signalbox_replicaset_missing_copies",
		"Copies that a replicaset lacks of those configured.", "replicaset").most(mostShards)
	InstanceState = cluster.gauge("signalbox_instance_state",
		"1 for the state that the cluster has this instance in.", "state").most(mostStates)
	InstanceTarget = cluster.gauge("signalbox_instance_target",
		"1 for the state that this instance is to have.", "state").most(mostStates)
	InstanceIncarnation = cluster.gauge("signalbox_instance_incarnation",
		"Rises each time that this instance comes online.")
	MetaLeader = cluster.gauge("signalbox_meta_leader",
		"Instance that leads the meta shard, as far as is known here; 0 for none.")
	MetaLeading = cluster.gauge("signalbox_meta_leading",
		"1 if this instance leads the meta shard.")
	MetaAppliedIndex = cluster.gauge("signalbox_meta_applied_index",
		"Index of the last entry of the meta shard that was applied.")
	MapVersion = cluster.gauge("signalbox_map_version",
		"Version of the cluster map.")
	Moves = cluster.gauge("signalbox_moves",
		"Moves of buckets under way.")
	GovernorSteps = cluster.counter("signalbox_governor_steps_total",
		"Steps of the plan that this instance carried out as the meta shard's leader.")
	GovernorErrors = cluster.counter("signalbox_governor_errors_total",
		"Steps of the plan that failed; they are tried again.")
	DetectorActions = cluster.counter("signalbox_failure_detector_actions_total",
		"Actions of the failure detector, by kind and outcome. Unanswered ones may have been accepted.",
		"action", "outcome").most(mostActions)
	DetectorLastAction = cluster.gauge("signalbox_failure_detector_last_action_age_seconds",
		"Time since the last action of the failure detector.", "action", "outcome").most(mostActions)
)
