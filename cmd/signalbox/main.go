// Command signalbox is the server and the command line of signalbox: one binary, one file per verb.
//
// Run `signalbox help` for the verbs, and see the README for a tour.
package main

import (
	"context"
	"io"
	"os"
	"strconv"

	_ "github.com/signalbox-dev/signalbox/cmd/signalbox/logfilter" // before anything else says something
	"github.com/signalbox-dev/signalbox/cmd/signalbox/supervise"
	"github.com/signalbox-dev/signalbox/server/logging"
	"github.com/signalbox-dev/signalbox/shard/replica/timerslack"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == supervise.Argument {
		if fd, err := strconv.Atoi(os.Args[2]); err == nil {
			supervise.Run(fd, commandSignals())
			return
		}
	}
	if len(os.Args) > 1 && (os.Args[1] == "serve" || os.Args[1] == "dev") {
		timerslack.DelayMonitor()
	}
	logging.CatchBrokenPipes()
	ctx, stop := signalContext()
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes one command line and returns the process's exit code. It touches no global state but
// the environment, so tests call it as a user calls the binary.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := newApp(ctx, stdin, stdout, stderr)
	root := a.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(help{a.output()})
	root.SetErr(a.notes)
	err := root.ExecuteContext(ctx)
	if a.logging != nil {
		a.logging.Flush(logging.FlushTimeout)
	}
	code := a.exit(err)
	a.flush()
	return code
}
