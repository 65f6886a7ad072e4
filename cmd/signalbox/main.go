// Command signalbox is the server and the command line of signalbox: one binary, one file per verb.
//
// Run `signalbox help` for the verbs, and see the README for a tour.
package main

import (
	"context"
	"io"
	"os"
	"runtime"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/signalbox-dev/signalbox/client"
	_ "github.com/signalbox-dev/signalbox/cmd/signalbox/logfilter"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/supervise"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/logging"
	"github.com/signalbox-dev/signalbox/server/release"
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

func versionCmd(a *app) *cobra.Command {
	c := command("version", "Print the version of the binary, its commit, and the formats that it writes",
		`Print the version of the binary, its commit, and the version of each format: of the protocol, of
what instances send each other and keep, of backups and of saved sessions.`)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := a.resolveClient(cmd); err != nil {
			return err
		}
		b := release.Current()
		r := row{
			{"version", "version", b.Version},
			{"protocol", "protocol", protocol.Version},
			{"go", "go", runtime.Version()},
			{"platform", "platform", runtime.GOOS + "/" + runtime.GOARCH},
		}
		if b.Commit != "" {
			r = append(r, field{"commit", "commit", b.Commit}, field{"commit_time", "committed", b.Time})
		}
		formats := rowsOf(append(server.Formats(), server.Format{Name: "session", Number: client.SavedVersion}),
			func(f *server.Format) row {
				return row{{"format", "format", f.Name}, {"version", "version", f.Number}}
			})
		return a.printer().item(append(r, field{"formats", "formats", formats}))
	}
	settings.AddFlags(c.Flags(), settings.Client, "output", "no-color")
	return c
}
