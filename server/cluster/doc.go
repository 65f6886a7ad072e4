// Package cluster is an instance's part in the cluster: its identity, discovery and joining,
// heartbeats, and calls to other instances. It reaches shards and raft groups wherever they are
// led, for the governor. The caller provides the instance's own part, behind [Local].
// DESIGN.md has the flow.
package cluster
