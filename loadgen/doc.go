// Package loadgen answers: how fast does a server answer under load?
//
//	scenario, err := loadgen.Find("lock-pairs")
//	result, err := loadgen.Run(ctx, loadgen.Config{
//		Scenario: scenario,
//		Target:   &loadgen.Signalbox{Client: client.Config{Endpoints: []string{"127.0.0.1:7070"}}},
//		Callers:  256,
//		WarmUp:   time.Second,
//		Duration: 10 * time.Second,
//	})
//	err = result.WriteTable(os.Stdout)
//
// # The measurement
//
// In a closed loop each caller begins its next operation when the last one has ended: the highest
// rate that the callers reach, and latencies at that rate. In an open loop operations begin at a
// fixed rate, whether earlier ones have ended or not, and a latency counts from the moment the
// operation was to begin: a wait caused by a stalled server is counted in full, although the
// operation was never sent (coordinated omission).
//
// The CPU that this process used, the client library included, is part of the result.
//
// # Other targets
//
// Scenarios speak to a Target through small interfaces, so that the same loops drive other systems.
// A target implements what it can; a scenario that needs more says so before it starts.
package loadgen
