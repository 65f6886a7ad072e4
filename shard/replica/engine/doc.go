// Package engine is dragonboat, the raft library, as replicas use it: its settings, its calls,
// which may be made beside its close, and its deviations from its documentation, each in a file of
// its own with a test. It knows neither shards nor their state machines.
package engine
