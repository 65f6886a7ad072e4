// Command bench answers: how close is this project to the limits of the machine? It does without
// the systems that need large dependencies, and measures clusters. The program of the module
// bench/peers compares with all.
//
// Its verbs are in ../verbs.go, except for limit, which needs the engine and the event loop: bare
// dragonboat and a bare echo, each in a process of its own. They are built with the versions of
// this module's go.mod, so the limits are those of the code that signalbox runs.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/signalbox-dev/signalbox/bench"
	"github.com/signalbox-dev/signalbox/bench/limits"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, bench.Timeout)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	cancel()
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "limit" {
		if err := limits.Command(ctx, args[1:], stdout); err != nil {
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
	}
}
