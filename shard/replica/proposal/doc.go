// Package proposal holds a shard's commands on their way into the log: a [Queue] gathers them in
// batches, keeps the batches whose outcome the log has not decided, and knows whether this replica
// may propose. It calls neither raft nor the state machine: its inputs are events, its outputs
// their consequences.
package proposal
