// Package failuredetector decides, on every instance, when the cluster has to be told that somebody is away or back: on the leader of the meta shard, which
// instance is unreachable; on an instance that was taken for dead, that it is alive; on one that stops, that it goes. Machine is a pure step machine: time is
// an argument, and what it decides is carried out by its caller.
package failuredetector
