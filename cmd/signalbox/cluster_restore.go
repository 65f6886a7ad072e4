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
	"config", "data", "listen", "raft", "advertise", "raft-advertise", "cluster", "instance", "tier", "failure-domain", "replication-factor", "join-token-file", "join-token",
	"shards", "log-level", "log-format",
}

func (a *app) restoreCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "restore FILE", Short: "Make a new cluster of one instance from a backup", Args: cobra.ExactArgs(1),
		Long: `Make a new cluster of one instance, in a new data folder, from a file of cluster backup. No server is asked. The file is checked first as backup --verify does; it is read into
memory whole. Then start the instance with serve and the same flags, and let others join.

All coordination nodes, rights, tokens, sessions, semaphores, owners, waiters and order ids are as in the backup. Clients attach their sessions again, as after a change of
leader: a session that was attached has its timeout and the grace period for that, and time stands still until the instance serves. What was acknowledged after the backup was made is not there:
stop the old cluster for good first, or two clients may hold one lock. Order ids, the fencing tokens, go on far above all that the old cluster can have given out, so that none
comes twice.

The new cluster has an id and keys of its own, so instances of the old one cannot join it with their folders. A client that is connected to the old one does not take the new one
for it: start the client's process again, and it takes over the session that it has kept.`,
		Example: "  signalbox cluster restore cluster.backup --data ./restored\n  signalbox serve --data ./restored",
	}
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		v, err := a.resolveServe(cmd)
		if err != nil {
			return err
		}
		cfg, err := a.serverConfig(v)
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
		return inv.printer().restored(args[0], cfg.DataDir, &from.Contents)
	})
	addFlags(c.Flags(), scopeServe, restoreFlags...)
	addFlags(c.Flags(), scopeClient, "output", "no-color")
	return c
}

// restored tells what was restored, and how to go on.
func (p *printer) restored(path, dir string, x *backup.Contents) error {
	sessions, semaphores := x.Sizes()
	return p.message(row{{"file", "", path}, {"data", "", dir}, {"sessions", "", sessions}, {"semaphores", "", semaphores}},
		"%s is restored to %s: %d sessions, %d semaphores; start it with the same flags: signalbox serve --data %s", sanitize(path), sanitize(dir), sessions, semaphores, sanitize(dir))
}
