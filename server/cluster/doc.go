// Package cluster is an instance as one of many: who it is, how it found the others, what it tells them and asks of them. It reaches shards and raft groups wherever they
// run, for the governor; it sends heartbeats and keeps those of the others. What runs on the instance itself is its caller's, behind [Local]. DESIGN.md has the flow.
package cluster
