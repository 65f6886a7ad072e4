// Package failuredetector decides, on every instance, when to report that an instance is down or
// back. On the leader of the meta shard it finds unreachable instances. On an instance that was
// marked offline it reports that the instance is alive; on one that stops, that it leaves. A
// [Detector] is a pure step machine: time is an argument, and the caller carries out its decisions.
package failuredetector
