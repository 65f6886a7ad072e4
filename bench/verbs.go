// What can the benchmark programs be asked for?

package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Usage of the programs built on Command.
const usage = `run [flags]             compare, and write bench/results/<when>-<machine>.{json,md}
values REPORT           the values of a report (JSON) in Go's benchmark format: compare two with benchstat
adopt REPORT            make a report the baseline, and put its table into bench/COMPARISON.md
failover [flags]        how long writers wait when the server that leads is taken away; beside etcd where the program has it
`

// exitCode is an error that has been reported already.
type exitCode int

func (c exitCode) Error() string { return "exit code " + strconv.Itoa(int(c)) }

// errUsage is a wrong command line.
const errUsage = exitCode(2)

// Command runs a verb of the benchmark program and returns its exit code: 0, 1 when a measurement
// failed, 2 for a wrong command line. systems returns the systems that run compares, given the
// folder of the binaries.
func Command(ctx context.Context, args []string, stdout, stderr io.Writer, systems func(bin string) []System) int {
	err := runVerb(ctx, args, stdout, stderr, systems)
	var code exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintln(stderr, err)
	return 1
}

func runVerb(ctx context.Context, args []string, stdout, stderr io.Writer, systems func(bin string) []System) error {
	if len(args) == 0 {
		return badUsage(stderr, usage)
	}
	switch verb, rest := args[0], args[1:]; verb {
	case "run":
		return runCommand(ctx, rest, stdout, stderr, systems)
	case "adopt":
		return adoptCommand(rest)
	case "values":
		r, err := readReport(rest, "values")
		if err != nil {
			return err
		}
		return r.WriteBenchmarks(stdout)
	case "failover":
		return failoverCommand(ctx, rest, stdout, stderr, systems)
	default:
		return badUsage(stderr, "unknown verb %q; there are:\n%s", verb, usage)
	}
}

func badUsage(stderr io.Writer, format string, args ...any) error {
	fmt.Fprintf(stderr, format, args...)
	return errUsage
}

type commonFlags struct {
	*flag.FlagSet
	bin, dir *string
}

func newFlags(verb string, stderr io.Writer) commonFlags {
	f := flag.NewFlagSet(verb, flag.ContinueOnError)
	f.SetOutput(stderr)
	return commonFlags{
		f, f.String("bin", "bin", "folder of the binaries signalbox, bench and etcd"),
		f.String("dir", ".", "folder on a real disk where servers keep their data; all of it is removed"),
	}
}

func runCommand(ctx context.Context, args []string, stdout, stderr io.Writer, systems func(bin string) []System) error {
	f := newFlags("run", stderr)
	out := f.String("out", filepath.Join("bench", "results"),
		"folder of the report; - writes the table to the standard output alone")
	quick := f.Bool("quick", false, "fewer and shorter rounds: about 17 minutes")
	tiny := f.Bool("tiny", false, "a few seconds, to see that all works: its figures mean nothing")
	rounds := f.Int("rounds", 0, "number of rounds; default 5, quick 2")
	length := f.Duration("length", 0, "of each measurement; default 5s, quick 1.5s; what is idle is watched four times as long")
	only := f.String("only", "", "benchmarks to run, separated by commas: "+strings.Join(benchmarkNames(), " "))
	if f.Parse(args) != nil {
		return errUsage
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
		s.setLength(*length)
	}
	if *only != "" {
		s.Only = strings.Split(*only, ",")
		for _, name := range s.Only {
			if !slices.Contains(benchmarkNames(), name) {
				return badUsage(stderr, "there is no benchmark %q; there are: %s\n", name, strings.Join(benchmarkNames(), " "))
			}
		}
	}
	s.Dir, s.Log, s.Systems = *f.dir, stderr, systems(*f.bin)
	r, err := Run(ctx, s)
	if err != nil {
		return err
	}
	if err := r.WriteTable(stdout); err != nil {
		return err
	}
	if *out != "-" {
		name, err := r.Save(*out)
		if err != nil {
			return err
		}
		fmt.Fprintf(stderr, "wrote %s\n", name)
	}
	return r.Err()
}

// Timeout is how long a benchmark program may take at most, whatever hangs.
const Timeout = 3 * time.Hour
