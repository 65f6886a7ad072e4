package monitoring

import m "github.com/signalbox-dev/signalbox/server/metrics"

// cluster is the page of those who run signalbox: leaders, moves, the plan, disks.
func cluster() dashboard {
	return dashboard{
		uid: "signalbox-cluster", title: "signalbox: cluster", about: "Leaders, terms, moves, the plan, the log and the disks.",
		rows: []row{
			{"Health", []panel{
				{title: "Health", help: "How many instances see the cluster in each state. signalbox cluster health says why.", unit: unitNone, stat: true, queries: []query{{now(m.ClusterHealth, "state"), "{{state}}"}}},
				{title: "Groups without a leader", help: "Shards, the meta shard with them, as the worst instance sees them.", unit: unitNone, stat: true, queries: []query{{most(m.GroupsUnavailable), "unavailable"}}},
				{title: "Groups at risk", help: "Shards that may lose less than is configured.", unit: unitNone, stat: true, queries: []query{{most(m.GroupsAtRisk), "at risk"}, {most(m.UnreachableCount), "unreachable instances"}}},
				{title: "Missing copies", help: "Copies that replicasets lack.", unit: unitNone, queries: []query{{most(m.MissingCopies, "replicaset"), "{{replicaset}}"}}},
				{title: "State of instances", help: "Instances by the state that the cluster has them in.", unit: unitNone, queries: []query{{now(m.InstanceState, "state"), "{{state}}"}}},
				{title: "Failure detector", help: "What the meta shard's leader did about instances that were not heard.", unit: unitPerSec,
					queries: []query{{perSecond(m.DetectorActions, "action", "outcome"), "{{action}} {{outcome}}"}}},
			}},
			{"Leaders", []panel{
				{title: "Shards led", help: "Shards that each instance leads. The plan keeps them even.", unit: unitNone, queries: []query{{now(m.ShardLeading, "instance"), "{{instance}}"}}},
				{title: "Terms", help: "A term rises with each election.", unit: unitNone, queries: []query{{most(m.ShardTerm, "shard"), "shard {{shard}}"}}},
				{title: "Take-overs", help: "Leaderships that began.", unit: unitPerSec, queries: []query{{perSecond(m.ShardTakeovers, "instance"), "{{instance}}"}}},
				{title: "Replicas behind", help: "Entries between the first and the last replica of a shard.", unit: unitNone,
					queries: []query{{most(m.ShardAppliedIndex, "shard") + " - " + least(m.ShardAppliedIndex, "shard"), "shard {{shard}}"}}},
				{title: "Read barriers", help: "Strict reads wait for one; a leader that fails them is cut off.", unit: unitPerSec, queries: []query{{perSecond(m.ShardBarriers), "succeeded"}, {perSecond(m.ShardBarrierFailures), "failed"}}},
				{title: "Entries lost", help: "Entries that raft did not take or whose outcome it could not tell, and those of former leaders.", unit: unitPerSec,
					queries: []query{{perSecond(m.ShardDropped), "dropped"}, {perSecond(m.ShardUndetermined), "undetermined"}, {perSecond(m.ShardRefused), "refused"}}},
			}},
			{"Plan", []panel{
				{title: "Moves of buckets", help: "Moves under way.", unit: unitNone, queries: []query{{most(m.Moves), "moves"}}},
				{title: "Steps of the plan", help: "Steps that the meta shard's leader carried out, and those that failed.", unit: unitPerSec, queries: []query{{perSecond(m.GovernorSteps), "steps"}, {perSecond(m.GovernorErrors), "errors"}}},
				{title: "Version of the map", help: "The lowest and the highest that instances have.", unit: unitNone, queries: []query{{least(m.MapVersion), "lowest"}, {most(m.MapVersion), "highest"}}},
			}},
			{"Log and disk", []panel{
				{title: "Entries and commands", help: "Commands for an entry rise with the load.", unit: unitPerSec, queries: []query{{perSecond(m.ShardBatches), "entries"}, {perSecond(m.ShardCommands), "commands"}}},
				{title: "Write to the log, with fsync, p99", help: "Every acknowledged write waits for it.", unit: unitSeconds, queries: []query{{quantile(0.99, m.LogWriteSeconds, "instance"), "{{instance}}"}}},
				{title: "Write under way", help: "After 5 s the instance is not ready, after 30 s it ends.", unit: unitSeconds, queries: []query{{most(m.LogWriteWaiting, "instance"), "{{instance}}"}}},
				{title: "Disk free", help: "Below 10 % of free space, at most 512 MiB, an instance hands over and ends.", unit: unitBytes, queries: []query{{least(m.DiskFree, "instance"), "{{instance}}"}}},
				{title: "Snapshots", help: "Snapshots of shards that were saved.", unit: unitPerSec, queries: []query{{perSecond(m.ShardSnapshots, "instance"), "{{instance}}"}}},
				{title: "Age of the last backup", help: "Of the shard whose last backup is oldest.", unit: unitSeconds, queries: []query{{"max(" + least(m.BackupAge, "shard") + ")", "oldest"}}},
			}},
			{"Between instances", []panel{
				{title: "Bytes", help: "Bytes to and from other instances.", unit: unitByteSec, queries: []query{{perSecond(m.PeerSentBytes, "instance"), "{{instance}} sent"}, {perSecond(m.PeerReceivedBytes, "instance"), "{{instance}} received"}}},
				{title: "Connections", help: "Connections with other instances, and attempts that failed.", unit: unitNone, queries: []query{{now(m.PeerConnections, "instance", "way"), "{{instance}} {{way}}"}, {perSecond(m.PeerDialsFailed, "instance"), "{{instance}} failed a second"}}},
				{title: "Dropped", help: "Messages that were dropped, and connections refused at the raft address.", unit: unitPerSec,
					queries: []query{{perSecondOf(m.PeerBatches, []string{`what="dropped"`}), "raft batches"}, {perSecondOf(m.PeerMessages, []string{`what="dropped"`}), "messages"}, {perSecond(m.PeerRefused, "reason"), "refused: {{reason}}"}}},
			}},
		},
	}
}
