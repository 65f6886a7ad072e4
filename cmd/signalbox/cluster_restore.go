package main

import (
	"fmt"
	"os"
	"time"

	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/backup"
	"github.com/spf13/cobra"
)

// restoreFlags are the settings of the instance that a restore makes; the rest of them matter only
// when it serves.
var restoreFlags = []string{
	"config", "data", "listen", "raft", "advertise", "raft-advertise", "cluster", "instance", "tier", "tiers",
	"failure-domain", "replication-factor", "join-token-file", "join-token",
	"shards", "log-level", "log-format",
}

func restoreCmd(a *app) *cobra.Command {
	c := command("restore FILE", "Create a new cluster of one instance from a backup",
		`Create a new cluster of one instance, in a new data folder, from a backup. No server is asked. The
file is checked first as with backup --verify; it is read into memory completely. Then start the
instance with serve and the same flags, and let others join.

Coordination nodes, rights, tokens, sessions, semaphores, owners and waiters are as in the backup.
Clients attach their sessions again, as after a leader change: a session has its timeout and the
grace period for that, and its time stands still until the instance serves. Writes acknowledged
after the backup are missing. Stop the old cluster for good first, or two clients may hold one
lock. Fencing tokens continue far above those of the old cluster, so none is given out twice.

The new cluster has its own id and keys, so instances of the old one cannot join it. A client that
is connected to the old cluster does not switch to the new one: restart the client's process, and
it takes over its saved session.`)
	c.Example = "  signalbox cluster restore cluster.backup --data ./restored\n  signalbox serve --data ./restored"
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		_, cfg, err := readServer(a, cmd)
		if err != nil {
			return err
		}
		f, err := os.Open(args[0])
		if err != nil {
			return err
		}
		defer f.Close()
		from, err := backup.Load(f, time.Now())
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		if err := server.Restore(inv.longCtx, cfg, from); err != nil {
			return err
		}
		dir := cfg.DataDir
		sessions, semaphores := from.Sizes()
		return inv.printer().message(row{{"file", "", args[0]}, {"data", "", dir}, {"sessions", "", sessions},
			{"semaphores", "", semaphores}},
			"%s is restored to %s: %d sessions, %d semaphores; start it with the same flags: signalbox serve --data %s",
			args[0], dir, sessions, semaphores, dir)
	})
	addFlags(c.Flags(), scopeServe, restoreFlags...)
	addFlags(c.Flags(), scopeClient, "output", "no-color")
	return c
}
