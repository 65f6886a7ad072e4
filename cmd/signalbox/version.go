package main

import (
	"runtime"
	"runtime/debug"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/spf13/cobra"
)

// version of this source tree; release builds may set another with -ldflags "-X main.version=...".
var version = server.DefaultVersion

func versionCmd(a *app) *cobra.Command {
	c := command("version", "Print the version of the binary, and that of the protocol", "")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := a.resolveClient(cmd); err != nil {
			return err
		}
		r := row{
			{"version", "version", version},
			{"protocol", "protocol", protocol.Version},
			{"go", "go", runtime.Version()},
			{"platform", "platform", runtime.GOOS + "/" + runtime.GOARCH},
		}
		if b, ok := debug.ReadBuildInfo(); ok {
			for _, s := range b.Settings {
				if s.Key == "vcs.revision" {
					r = append(r, field{"commit", "commit", s.Value})
				}
			}
		}
		return a.printer().item(r)
	}
	addFlags(c.Flags(), scopeClient, "output", "no-color")
	return c
}
