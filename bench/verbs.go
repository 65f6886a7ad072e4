package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
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
discovery [flags]       20,000 members and 20,000 watchers for ten minutes
service [flags]         one service of 5,000 members with 2,000 watchers, and its leader killed; of etcd with bench-peers service -system etcd
grow [flags]            from one instance to three and six, and back, under load
restart [flags]         restarts and snapshots with a million semaphores and 100,000 sessions
failover [flags]        how long writers wait when the server that leads is taken away; beside etcd where the program has it
ratelimit [flags]       rate limits: local decisions, beside a request for each where the program has Redis; 10,000 sessions that share one
sessions [flags]        a million sessions on three instances: a leader killed, a snapshot, a move of buckets, a rolling restart
scale [flags]           instances with a CPU quota each, three to twelve; needs root and control groups
soak [flags]            two hours of mixed load, restarts, rollouts, moves and kills
`

// exitCode is an error that has been reported already.
type exitCode int

func (c exitCode) Error() string { return "exit code " + strconv.Itoa(int(c)) }

// errUsage is a wrong command line.
const errUsage = exitCode(2)

// Command runs a verb of the benchmark program and returns its exit code: 0, 1 when a measurement
// failed, 2 for a wrong command line. systems are what run compares, given the folder of the
// binaries.
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
	case watchersVerb:
		return watchersCommand(ctx, rest, os.Stdin, stdout)
	case "discovery", "service", "grow", "restart", "scale", "sessions", "soak":
		return longCommand(ctx, verb, rest, stdout, stderr, systems)
	case "ratelimit":
		return rateLimitCommand(ctx, rest, stdout, stderr, systems)
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
	bin, dir, out *string
}

func newFlags(verb string, stderr io.Writer) commonFlags {
	f := flag.NewFlagSet(verb, flag.ContinueOnError)
	f.SetOutput(stderr)
	return commonFlags{
		f, f.String("bin", "bin", "folder of the binaries signalbox, bench and etcd"),
		f.String("dir", ".", "folder on a real disk where servers keep their data; all of it is removed"),
		f.String("out", filepath.Join("bench", "results"), "folder of the report; - writes the table to the standard output alone"),
	}
}

func runCommand(ctx context.Context, args []string, stdout, stderr io.Writer, systems func(bin string) []System) error {
	f := newFlags("run", stderr)
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
	if err := finish(r, *f.out, stdout, stderr); err != nil {
		return err
	}
	return r.Err()
}

func longCommand(ctx context.Context, verb string, args []string, stdout, stderr io.Writer, systems func(bin string) []System) error {
	f := newFlags(verb, stderr)
	part := f.Int("part", 1, "run one part in so many, which is no test of the bar")
	quotas, system := "", Signalbox
	if verb == "service" {
		f.StringVar(&system, "system", Signalbox, "system to measure")
	}
	if verb == "scale" {
		f.StringVar(&quotas, "quotas", "5", "per cents of a core that each instance may use, separated by commas")
	}
	if f.Parse(args) != nil {
		return errUsage
	}
	if *part < 1 {
		return badUsage(stderr, "--part is at least 1\n")
	}
	var test longTest
	switch length := time.Duration(*part); verb {
	case "discovery":
		d := DefaultDiscovery()
		d.Members, d.Watchers, d.Length = d.Members / *part, d.Watchers / *part, d.Length/length
		test = d
	case "service":
		c := DefaultService()
		c.Members, c.Watchers, c.Copies = c.Members / *part, c.Watchers / *part, max(1, c.Copies / *part)
		c.Slow, c.Busy = c.Slow/length, c.Busy/length
		r, err := runService(ctx, c, findSystem(systems(*f.bin), system), *f.dir, stderr)
		if err != nil {
			return err
		}
		return finish(r, *f.out, stdout, stderr)
	case "grow":
		g := DefaultGrow()
		g.Names, g.Sessions = g.Names / *part, g.Sessions / *part
		test = g
	case "scale":
		c := DefaultScale()
		var err error
		if c.Quotas, err = parseQuotas(quotas); err != nil {
			return badUsage(stderr, "%v\n", err)
		}
		c.Rounds, c.Sessions = max(1, c.Rounds / *part), c.Sessions / *part
		c.Length, c.WarmUp = max(time.Second, c.Length/length), max(time.Second, c.WarmUp/length)
		test = c
	case "sessions":
		c := DefaultSessions()
		c.Sessions, c.Holders = c.Sessions / *part, c.Holders / *part
		test = c
	case "soak":
		c := DefaultSoak()
		c.Length, c.Window = c.Length/length, c.Window/length
		test = c
	default:
		c := DefaultRestart()
		c.Names, c.Sessions, c.Watch = c.Names / *part, c.Sessions / *part, c.Watch/length
		test = c
	}
	r, err := runLong(ctx, verb, test, &SignalboxSystem{Binary: filepath.Join(*f.bin, "signalbox")}, *f.dir, stderr)
	if err != nil {
		return err
	}
	return finish(r, *f.out, stdout, stderr)
}

func findSystem(list []System, name string) System {
	for _, s := range list {
		if s.Name() == name {
			return s
		}
	}
	return nil
}

// parseQuotas reads per cents, 1 to 100.
func parseQuotas(text string) (list []float64, err error) {
	for field := range strings.SplitSeq(text, ",") {
		v, err := strconv.ParseFloat(strings.TrimSpace(field), 64)
		if err != nil || !(v >= 1 && v <= 100) {
			return nil, fmt.Errorf("--quotas: %q is no per cent of a core; give 1 to 100", field)
		}
		list = append(list, v/100)
	}
	return list, nil
}

// finish shows a report or a record, and saves it in the folder out unless that is "-".
func finish(r interface {
	WriteTable(w io.Writer) error
	Save(dir string) (string, error)
}, out string, stdout, stderr io.Writer) error {
	if err := r.WriteTable(stdout); err != nil || out == "-" {
		return err
	}
	name, err := r.Save(out)
	if err == nil {
		fmt.Fprintf(stderr, "wrote %s\n", name)
	}
	return err
}

// Timeout is how long a benchmark program may take at most, whatever hangs.
const Timeout = 3 * time.Hour
