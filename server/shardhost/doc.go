// Package shardhost runs the data shards of an instance and serves them to clients. A [Shard] is one
// of them: the replica that runs here, and what stands between it and the connections. [Hosting]
// starts and stops replicas as the map says, carries the messages between their leaders, does what
// the governor asks, and takes backups. [Serving] is what the shards have in common towards clients:
// what a replica reports becomes replies, events, pongs and goodbyes, and a metric or a line of the
// audit log where operators want one.
//
// It knows connections as clients of the package request, and leaves watches and streams to the
// hubs of delivery.
package shardhost
