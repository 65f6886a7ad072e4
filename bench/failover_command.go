// Which faults and systems does a measurement of failovers have?

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// failoverCommand measures failovers. With root it makes hosts, and runs itself again on the
// load's.
func failoverCommand(ctx context.Context, args []string, stdout, stderr io.Writer, all func(bin string) []System) error {
	c := DefaultFailover()
	f := newFlags("failover", stderr)
	only := f.String("only", "",
		"faults, separated by commas: "+strings.Join(faultNames(), " ")+"; default all")
	systems := f.String("systems", "", "systems, separated by commas; default all that can be measured")
	inside := f.String("inside", "", "name of hosts that are there already; the program gives it to itself")
	f.IntVar(&c.Times, "times", c.Times, "how often each fault comes")
	f.DurationVar(&c.Watch, "watch", c.Watch, "how long a fault lasts")
	if f.Parse(args) != nil {
		return errUsage
	}
	if *only != "" {
		c.Only = strings.Split(*only, ",")
		for _, name := range c.Only {
			if !slices.Contains(faultNames(), name) {
				return badUsage(stderr, "there is no fault %q; there are: %s\n", name, strings.Join(faultNames(), " "))
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
	var list []FailoverSystem
	for _, x := range all(*f.bin) {
		if s, ok := x.(FailoverSystem); ok && (*systems == "" || slices.Contains(strings.Split(*systems, ","), x.Name())) {
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		return badUsage(stderr, "there is no system to measure\n")
	}
	r, err := RunFailover(ctx, list, c, hosts, *f.dir, stderr)
	if err != nil {
		return err
	}
	return r.WriteTable(stdout)
}

// faultNames returns the names of the faults.
func faultNames() (list []string) {
	for _, f := range faults {
		list = append(list, f.name)
	}
	return list
}

// failoverOn runs this program again on the host of the load.
func failoverOn(ctx context.Context, hosts *Hosts, args []string, stdout, stderr io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program, words := hosts.Command(loadHost, self, append([]string{"failover", "-inside", hosts.name}, args...)...)
	cmd := exec.CommandContext(ctx, program, words...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = stdout, stderr, procAttr()
	err = cmd.Run()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return exitCode(ended.ExitCode())
	}
	return err
}
