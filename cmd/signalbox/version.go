package main

import (
	"runtime"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/release"
	"github.com/spf13/cobra"
)

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
