// Package bench answers: how fast is this project beside other systems, on the same machine?
//
//	settings := bench.QuickSettings()
//	settings.Systems = []bench.System{&bench.SignalboxSystem{Binary: "bin/signalbox"}}
//	report, err := bench.Run(ctx, settings)
//	err = report.WriteTable(os.Stdout)
//
// Absolute figures of one machine drift by a factor of two within a day, so only figures of the
// same run are compared. The systems run a benchmark one right after the other, each on a fresh
// folder of the same disk; every other round reverses the order. The result is the ratio within a
// round: the table shows its median and its range over the rounds.
//
// A measured system is a [System]: how to start it, and a loadgen.Target that speaks to it through
// its own best client. Systems that need large dependencies live in the module bench/peers, which
// calls this package. A system that is not installed is named in the report.
//
// Measurements of clusters that other systems do not have are a [Record] each. The metrics are in
// metrics.go.
package bench
