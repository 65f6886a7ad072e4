package bench

import (
	"context"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"
)

// Usage of the programs built on Command.
const usage = `run [flags]             compare, and write bench/results/<when>-<machine>.{json,md,svg}
compare OLD NEW         what changed between two reports (JSON files)
show REPORT             the table of a report
adopt REPORT            make a report the baseline, and put its tables into README.md and bench/SCALING.md
discovery [flags]       20,000 members and 20,000 watchers for ten minutes
grow [flags]            from one instance to three and six, and back, under load
restart [flags]         restarts and snapshots with a million semaphores and 100,000 sessions
failover [flags]        how long writers wait when the server that leads is taken away; beside etcd where the program has it
scaling REPORT          what a report's costs say of many machines
`

// Command runs a verb of the benchmark program and returns its exit code: 0, 1 when a measurement
// failed, 2 when it was used wrongly. peers are what run compares, given the folder of the
// binaries.
func Command(ctx context.Context, args []string, stdout, stderr io.Writer, peers func(bin string) []Peer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	var err error
	switch verb, rest := args[0], args[1:]; verb {
	case "run":
		return runCommand(ctx, rest, stdout, stderr, peers)
	case "compare":
		err = compareCommand(rest, stdout)
	case "show":
		err = showCommand(rest, stdout)
	case "adopt":
		err = adoptCommand(rest)
	case "discovery", "grow", "restart":
		return longCommand(ctx, verb, rest, stdout, stderr)
	case "failover":
		return failoverCommand(ctx, rest, stdout, stderr, peers)
	case "scaling":
		err = scalingCommand(rest, stdout)
	default:
		fmt.Fprintf(stderr, "unknown verb %q; there are:\n%s", verb, usage)
		return 2
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func runCommand(ctx context.Context, args []string, stdout, stderr io.Writer, peers func(bin string) []Peer) int {
	f := flag.NewFlagSet("run", flag.ContinueOnError)
	f.SetOutput(stderr)
	quick := f.Bool("quick", false, "fewer and shorter rounds: about five minutes")
	tiny := f.Bool("tiny", false, "a few seconds, to see that all works: its figures mean nothing")
	rounds := f.Int("rounds", 0, "number of rounds; default 5, quick 2")
	length := f.Duration("length", 0, "of each measurement; default 5s, quick 1.5s")
	only := f.String("only", "", "blocks to run, separated by commas: "+strings.Join(benchmarkNames(), " "))
	bin := f.String("bin", "bin", "folder of the binaries signalbox, bench and etcd")
	dir := f.String("dir", ".", "folder on a real disk where servers keep their data; all of it is removed")
	out := f.String("out", filepath.Join("bench", "results"), "folder of the report; - writes the table to the standard output alone")
	if err := f.Parse(args); err != nil {
		return 2
	}
	s := DefaultSettings()
	switch {
	case *tiny:
		s = TinySettings()
	case *quick:
		s = QuickSettings()
	}
	if *rounds > 0 {
		s.Rounds, s.SlowRounds = *rounds, min(*rounds, s.SlowRounds)
	}
	if *length > 0 {
		s.Length = *length
	}
	if *only != "" {
		s.Only = strings.Split(*only, ",")
		for _, name := range s.Only {
			if !isBenchmark(name) {
				fmt.Fprintf(stderr, "there is no block %q; there are: %s\n", name, strings.Join(benchmarkNames(), " "))
				return 2
			}
		}
	}
	s.Dir, s.Log, s.Peers = *dir, stderr, peers(*bin)
	r, err := Run(ctx, s)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	if err := r.WriteTable(stdout); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	if *out != "-" {
		name, err := r.Save(*out)
		if err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
		fmt.Fprintf(stderr, "wrote %s.json, .md and .svg\n", name)
	}
	if err := r.Err(); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

// longCommand runs one of the long tests.
func longCommand(ctx context.Context, verb string, args []string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet(verb, flag.ContinueOnError)
	f.SetOutput(stderr)
	bin := f.String("bin", "bin", "folder of the binary signalbox")
	dir := f.String("dir", ".", "folder on a real disk where the server keeps its data; all of it is removed")
	out := f.String("out", filepath.Join("bench", "results"), "folder of the record; - writes the table to the standard output alone")
	part := f.Int("part", 1, "run one part in so many, which is no test of the bar")
	if err := f.Parse(args); err != nil {
		return 2
	}
	if *part < 1 {
		fmt.Fprintln(stderr, "--part is at least 1")
		return 2
	}
	peer := &SignalboxPeer{Binary: filepath.Join(*bin, "signalbox"), Shards: defaultShards}
	var r *Record
	var err error
	switch verb {
	case "discovery":
		d := DefaultDiscovery()
		d.Members, d.Watchers, d.Length = d.Members / *part, d.Watchers / *part, d.Length/time.Duration(*part)
		r, err = RunDiscovery(ctx, peer, d, *dir)
	case "grow":
		g := DefaultGrow()
		g.Names, g.Sessions = g.Names / *part, g.Sessions / *part
		r, err = RunGrow(ctx, peer, g, *dir, stderr)
	default:
		c := DefaultRestart()
		c.Names, c.Sessions, c.Watch = c.Names / *part, c.Sessions / *part, c.Watch/time.Duration(*part)
		r, err = RunRestart(ctx, peer, c, *dir, stderr)
	}
	return finishRecord(r, err, *out, stdout, stderr)
}

// finishRecord shows the record of a measurement that ended without err, and saves it in the folder
// out unless that is "-". It returns the exit code.
func finishRecord(r *Record, err error, out string, stdout, stderr io.Writer) int {
	if err == nil {
		err = r.WriteTable(stdout)
	}
	if err == nil && out != "-" {
		var name string
		if name, err = r.Save(out); err == nil {
			fmt.Fprintf(stderr, "wrote %s.json and .md\n", name)
		}
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func benchmarkNames() []string {
	var names []string
	for _, b := range benchmarks {
		names = append(names, b.name)
	}
	return names
}

func isBenchmark(name string) bool {
	for _, b := range benchmarks {
		if b.name == name {
			return true
		}
	}
	return false
}

func compareCommand(args []string, w io.Writer) error {
	if len(args) != 2 {
		return fmt.Errorf("give two reports: compare OLD.json NEW.json")
	}
	old, err := Read(args[0])
	if err != nil {
		return err
	}
	new, err := Read(args[1])
	if err != nil {
		return err
	}
	return WriteCompare(w, old, new)
}

func showCommand(args []string, w io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("give one report: show REPORT.json")
	}
	r, err := Read(args[0])
	if err != nil {
		return err
	}
	return r.WriteTable(w)
}

// Timeout is how long a benchmark program may take at most, whatever hangs.
const Timeout = 3 * time.Hour
