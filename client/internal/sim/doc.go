// Package sim runs shards, the tasks of their leaders and the SDK's engine on a simulated network,
// clock and disk, in one goroutine, driven by a seed.
//
//	r := Run(Options{Seed: 7})
//	fmt.Println(r.Violation, r.Operations)
//
// The state machines are the real ones: shard.Machine, leader.Leader and core.Engine. The log, the
// connections, the driver of a leader, the listener and the programs are written here, as hostile as
// their contracts allow. The seed determines everything: a run repeats exactly. DESIGN.md says what
// is checked, and what is not simulated. All of it is test code.
package sim
