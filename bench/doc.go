// Package bench is the stopwatch: it runs this project and its peers side by side on one machine,
// and says how they compare.
//
//	settings := bench.QuickSettings()
//	settings.Peers = []bench.Peer{bench.SignalboxPeer("bin/signalbox")}
//	report, err := bench.Run(ctx, settings)
//	err = report.WriteTable(os.Stdout)
//
// Absolute figures of one machine drift by a factor of two within a day, so that only figures of
// the same run are compared: a piece of work is done by one system right after the other, in an
// order that turns around each round, each on a fresh folder of the same disk. What counts is the
// ratio within a round; the table shows its median and its range over the rounds.
//
// A system under the stopwatch is a [Peer]: how to start it, and a loadgen.Target that speaks to it
// through its own best client. Peers that need large dependencies live in the module bench/peers,
// which calls this package. A peer that is not installed is named in the report.
//
// What is measured is the list in metrics.go; what is demanded of the figures are the bars in
// threshold.go.
package bench
