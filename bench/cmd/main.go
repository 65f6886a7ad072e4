// Command bench is the benchmark without the systems that need large dependencies: it compares with
// what is physically possible, compares reports, and runs the long tests of one system. The program
// of the module bench/peers compares with all.
//
// Its verbs are in ../verbs.go, except for limit, which needs the engine and the event loop: bare
// dragonboat, a bare echo, and the echo over a log, each in a process of its own. They are built
// with the versions of this module's go.mod, so the limits are those of the code that signalbox
// runs.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/signalbox-dev/signalbox/bench"
	"github.com/signalbox-dev/signalbox/bench/limits"
	"github.com/signalbox-dev/signalbox/shard/replica/timerslack"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == "limit" && os.Args[2] == "logged-echo" {
		timerslack.DelayMonitor() // as signalbox does
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, bench.Timeout)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	cancel()
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "limit" {
		if err := limit(ctx, args[1:], stdout); err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
		return 0
	}
	return bench.Command(ctx, args, stdout, stderr, systems)
}

func systems(bin string) []bench.System {
	self, err := os.Executable()
	if err != nil {
		self = filepath.Join(bin, "bench")
	}
	return []bench.System{
		&bench.SignalboxSystem{Binary: filepath.Join(bin, "signalbox")},
		&bench.RaftLimit{Binary: self},
		&bench.EchoLimit{Binary: self},
		&bench.LoggedEchoLimit{Binary: self},
	}
}

// limit is what the benchmark starts as a server, or has measured, in a process of its own.
func limit(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("give raft, echo, fan-out, logged-echo or version")
	}
	f := flag.NewFlagSet("limit", flag.ContinueOnError)
	dir := f.String("dir", "", "empty folder on a real disk")
	listen := f.String("listen", "", "address")
	raft := f.String("raft", "", "address of the engine, which only other members call")
	members := f.String("members", "", "addresses of all members' engines, separated by commas; empty: one member")
	groups := f.Int("groups", 1, "raft groups")
	length := f.Duration("for", time.Second, "of each measurement")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "raft":
		r, err := limits.MeasureRaft(ctx, *dir, *listen, *length)
		if err != nil {
			return err
		}
		return json.NewEncoder(stdout).Encode(r)
	case "echo":
		return limits.ServeEcho(ctx, *listen)
	case "fan-out":
		return limits.ServeFanOut(ctx, *listen)
	case "logged-echo":
		echo := limits.LoggedEcho{Listen: *listen, Raft: *raft, Dir: *dir, Groups: *groups}
		if *members != "" {
			echo.Members = strings.Split(*members, ",")
		}
		return echo.Serve(ctx)
	case "version":
		info, ok := debug.ReadBuildInfo()
		if !ok || f.NArg() != 1 {
			return fmt.Errorf("give a module that this program was built with")
		}
		for _, m := range info.Deps {
			if strings.Contains(m.Path, "/"+f.Arg(0)+"/") {
				_, err := fmt.Fprint(stdout, m.Path, " ", m.Version)
				return err
			}
		}
		return fmt.Errorf("this program was not built with %s", f.Arg(0))
	}
	return fmt.Errorf("give raft, echo, fan-out, logged-echo or version")
}
