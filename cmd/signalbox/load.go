package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/signalbox-dev/signalbox/loadgen"
	"github.com/signalbox-dev/signalbox/server/file"
	"github.com/signalbox-dev/signalbox/server/release"
	"github.com/spf13/cobra"
)

// loadFlags are the values of load's flags that the flag set does not parse itself.
type loadFlags struct {
	cfg             loadgen.Config
	connections     *int
	svg, cpuProfile string
}

func loadCmd(a *app) *cobra.Command {
	var names, lines []string
	for _, s := range loadgen.Scenarios() {
		names = append(names, s.Name)
		lines = append(lines, fmt.Sprintf("  %-17s %s", s.Name, s.Short))
	}
	c := command("load SCENARIO", "Put a server under load and measure how fast it answers",
		`Put a server under load and measure how fast it answers. The scenarios:

`+strings.Join(lines, "\n")+`

Without --rate the load is a closed loop: each caller starts its next operation when the previous
one has ended. With --rate it is an open loop: operations start at that rate, and a latency counts
from the scheduled start. Ctrl-C ends the load and shows the results so far.

The exit code is 1 when more than 1 % of the operations fail. Judge other figures from -o json.`)
	c.ValidArgs = names
	c.Example = `  signalbox load lock-pairs --callers 256 --connections 8
  signalbox load lock-pairs --rate 5000 --duration 1m --svg pairs.svg
  signalbox load idle-sessions --sessions 5000 --connections each --metrics 127.0.0.1:7072`
	var f loadFlags
	fs := c.Flags()
	fs.IntVar(&f.cfg.Callers, "callers", 0,
		"Concurrent operations; in an open loop the maximum (default usually 64, in an open loop 512).")
	f.connections = parsedVar(fs, "connections", "", parseConnections,
		"Number of connections, or each: one for every session and watcher (default 4, or one for 1000 watchers).")
	fs.IntVar(&f.cfg.Sessions, "sessions", 0,
		"Number of sessions; for discovery, of members (default one for each caller).")
	fs.IntVar(&f.cfg.Keys, "keys", 0, "Number of names; for discovery, of services (default depends on the scenario).")
	fs.Float64Var(&f.cfg.Skew, "skew", 0,
		"Exponent of the zipf distribution of names; 0 is uniform, 0.99 is typical of caches.")
	fs.IntVar(&f.cfg.Watchers, "watchers", 0,
		"Number of watchers of all names (default 1000; for discovery, as many as members).")
	fs.Uint64Var(&f.cfg.Limit, "limit", 0,
		"Units of the semaphore in the scenario semaphore (default half of the callers).")
	fs.IntVar(&f.cfg.DataSize, "data-size", 0, "Bytes of data written with each operation, up to 1 MiB.")
	fs.Float64Var(&f.cfg.Churn, "churn", 10, "Per cent of the members in discovery that restart each minute.")
	fs.Float64Var(&f.cfg.Rate, "rate", 0, "Operations per second of an open loop; 0: closed loop.")
	durationVar(fs, &f.cfg.Duration, "duration", 10*time.Second, "How long to measure; 0: until --operations are done.")
	durationVar(fs, &f.cfg.WarmUp, "warm-up", 2*time.Second, "How long to run before measuring.")
	fs.Uint64Var(&f.cfg.Operations, "operations", 0, "Stop after this many operations, warm-up included; 0: no limit.")
	durationVar(fs, &f.cfg.Deadline, "deadline", 10*time.Second,
		"Timeout of the context that each call gets, as in a program; 0: none. A call that takes longer is an error.")
	durationVar(fs, &f.cfg.Patience, "patience", 10*time.Second,
		"How long to wait for unfinished operations after the duration; then they are errors.")
	fs.Uint64Var(&f.cfg.Seed, "seed", 1, "Seed of random choices, such as names.")
	fs.StringVar(&f.cfg.Metrics, "metrics", "", "Admin address of the instance, host:port; measures its memory and CPU.")
	fs.StringVar(&f.svg, "svg", "", "Write an SVG plot to this file: latency over percentile, throughput over time.")
	fs.StringVar(&f.cpuProfile, "cpu-profile", "",
		"Write a CPU profile of this process to this file, for go tool pprof.")
	settings.AddFlags(fs, settings.Client)
	c.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error { return runLoad(inv, args[0], f) })
	return c
}

func parseConnections(text string) (int, error) {
	if text == "each" {
		return loadgen.Each, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is neither a number above 0 nor each", text)
	}
	return n, nil
}

// toleratedErrors is the percentage of operations that may fail.
const toleratedErrors = 1

func runLoad(inv *invocation, name string, f loadFlags) error {
	cfg, err := loadConfig(inv, name, f)
	if err != nil {
		return err
	}
	// Connect first, so that an unreachable server is reported as by other verbs.
	if _, err := inv.openNode(); err != nil {
		return err
	}
	for _, path := range []string{f.svg, f.cpuProfile} {
		if err := file.CheckRegular(path); path != "" && err != nil {
			return err // before the load, which takes its time
		}
	}
	profile, err := startProfile(f.cpuProfile)
	if err != nil {
		return err
	}
	defer profile()
	clear := func() {}
	if terminal.Is(inv.stderr) {
		cfg.Progress, clear = progressLine(inv.notes, name)
	}
	r, err := loadgen.Run(inv.longCtx, cfg)
	clear()
	profile()
	if err != nil {
		if inv.longCtx.Err() != nil && errors.Is(err, context.Canceled) {
			err = fmt.Errorf("interrupted before anything was measured")
		}
		return err
	}
	if err := writeFile(f.svg, r.WritePlot); err != nil {
		return err
	}
	if inv.values["output"] == "table" {
		err = r.WriteTable(inv.output())
	} else {
		err = r.WriteJSON(inv.output(), inv.values["output"] == "json")
	}
	failed := r.ErrorCount()
	switch {
	case err != nil:
		return err
	case r.Interrupted:
		return errors.New("interrupted before the load's end")
	case failed*100 > toleratedErrors*(r.Operations+failed):
		return fmt.Errorf("%d of %d operations failed, more than %d%%",
			failed, r.Operations+failed, toleratedErrors)
	}
	return nil
}

// loadConfig builds and checks the configuration before a server is asked.
func loadConfig(inv *invocation, name string, f loadFlags) (loadgen.Config, error) {
	cfg := f.cfg
	cfg.Connections = *f.connections
	var err error
	if cfg.Scenario, err = loadgen.Find(name); err != nil {
		return cfg, usagef("%v", err)
	}
	target := inv.cfg
	target.Name = "signalbox-load/" + release.Current().Version
	cfg.Target = &loadgen.Signalbox{Client: target, Node: inv.node, Timeout: inv.ttl,
		SessionEach: cfg.Scenario.Name == "session-storm" && cfg.Connections == loadgen.Each}
	if err := cfg.Check(); err != nil {
		return cfg, usagef("%v", err)
	}
	return cfg, nil
}

// startProfile profiles this process until the function it gives is called, which may be called
// again.
func startProfile(path string) (stop func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	w, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("cannot write --cpu-profile: %w", err)
	}
	if err := pprof.StartCPUProfile(w); err != nil {
		w.Close()
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		w.Close()
	}, nil
}

func writeFile(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	return file.Replace(path, func(w *os.File) error { return write(w) }, nil)
}

// progressLine repaints one line of a terminal; clear removes it.
func progressLine(w io.Writer, name string) (show func(loadgen.Progress), clear func()) {
	return func(p loadgen.Progress) {
			text := name + ": preparing"
			if !p.Preparing {
				at := p.Elapsed.Truncate(100 * time.Millisecond).String()
				switch {
				case p.WarmingUp:
					at = "warming up"
				case p.Duration > 0:
					at = fmt.Sprintf("%.1fs of %s", p.Elapsed.Seconds(), p.Duration)
				}
				text = fmt.Sprintf("%s: %s, %s, %.0f/s, %s", name, at,
					count(uint64(p.Operations), "operation"), p.Rate, count(uint64(p.Errors), "error"))
			}
			fmt.Fprintf(w, "\r\x1b[K%s", text)
		}, func() {
			fmt.Fprint(w, "\r\x1b[K")
		}
}
