// Package proposal holds a shard's commands on their way into the log: a [Queue] gathers them in
// batches, keeps the batches whose outcome the log has not decided, and knows whether this replica
// may propose. It calls neither raft nor the state machine. What happens is told to it, and it
// answers with what follows.
package proposal
