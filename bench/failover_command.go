package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// failoverCommand measures failovers. With root it makes hosts, and runs itself again on the
// load's.
func failoverCommand(ctx context.Context, args []string, stdout, stderr io.Writer, peers func(bin string) []Peer) int {
	c := DefaultFailover()
	f := flag.NewFlagSet("failover", flag.ContinueOnError)
	f.SetOutput(stderr)
	bin := f.String("bin", "bin", "folder of the binaries signalbox and etcd")
	dir := f.String("dir", ".", "folder on a real disk where the servers keep their data; all of it is removed")
	out := f.String("out", filepath.Join("bench", "results"), "folder of the record; - writes the table to the standard output alone")
	only := f.String("only", "", "faults, separated by commas: kill pause cut stop; none: only what faster settings cost; default all")
	systems := f.String("systems", "", "systems, separated by commas; default all that can be measured")
	inside := f.String("inside", "", "name of hosts that are there already; the program gives it to itself")
	f.IntVar(&c.Times, "times", c.Times, "how often each fault comes")
	f.DurationVar(&c.Watch, "watch", c.Watch, "how long a fault lasts")
	f.BoolVar(&c.Costs, "costs", c.Costs, "tell what faster settings cost, too")
	if err := f.Parse(args); err != nil {
		return 2
	}
	if *only != "" {
		c.Only = strings.Split(*only, ",")
		for _, name := range c.Only {
			if name != "none" && !slices.ContainsFunc(faults, func(f fault) bool { return f.name == name }) {
				fmt.Fprintf(stderr, "there is no fault %q; there are: kill pause cut stop, and none\n", name)
				return 2
			}
		}
	}
	var hosts *Hosts
	if *inside != "" {
		hosts = existingHosts(*inside)
	} else if made, err := MakeHosts(); err != nil {
		fmt.Fprintf(stderr, "nothing is cut off: %v\n", err)
	} else {
		defer made.Close()
		return failoverOn(ctx, made, args, stdout, stderr)
	}
	var list []FailoverPeer
	for _, p := range peers(*bin) {
		if s, ok := p.(FailoverPeer); ok && (*systems == "" || slices.Contains(strings.Split(*systems, ","), p.Name())) {
			if b, ok := p.(*SignalboxPeer); ok && b.Shards == 0 {
				b.Shards = defaultShards
			}
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		fmt.Fprintln(stderr, "there is no system to measure")
		return 2
	}
	r, err := RunFailover(ctx, list, c, hosts, *dir, stderr)
	return finishRecord(r, err, *out, stdout, stderr)
}

// failoverOn runs this program again on the host of the load.
func failoverOn(ctx context.Context, hosts *Hosts, args []string, stdout, stderr io.Writer) int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	program, words := hosts.Command(loadHost, self, append([]string{"failover", "-inside", hosts.name}, args...)...)
	cmd := exec.CommandContext(ctx, program, words...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = stdout, stderr, procAttr()
	err = cmd.Run()
	var ended *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ended):
		return ended.ExitCode()
	}
	fmt.Fprintln(stderr, err)
	return 1
}
