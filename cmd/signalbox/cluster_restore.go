package main

import (
	"fmt"
	"strings"

	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/backup"
	"github.com/signalbox-dev/signalbox/server/datafolder"
	"github.com/spf13/cobra"
)

// restoreFlags are the settings of the instance that a restore makes: its addresses, and what its
// connections to other instances need. The rest of them matter only when it serves.
var restoreFlags = []string{
	"config", "data", "listen", "raft", "advertise", "raft-advertise", "cluster", "instance", "tier", "tiers",
	"listen-tls", "listen-tls-cert", "listen-tls-key", "listen-tls-client-ca", "listen-tls-require-client-cert",
	"advertise-tls", "cluster-tls-cert", "cluster-tls-key", "cluster-tls-ca", "offline-after", "raft-rtt",
	"failure-domain", "replication-factor", "peer", "join-token-file", "join-token",
	"shards", "log-level", "log-format",
}

func restoreCmd(a *app) *cobra.Command {
	c := command("restore FILE", "Create a new cluster of one instance from a backup, or restore one more tier of it",
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
it takes over its saved session.

A cluster with data in several tiers gets the tiers that it had, unless --tiers says otherwise; name
those with data as in the backup. This instance restores its own tier, and the new cluster serves
that one at once. Then restore each other tier from the same file: with its --tier, --peer and the
join token, to a data folder of its own, while the cluster runs. Until that is done the tier serves
nothing. If it is interrupted, run it again with the same folder. Start the instance with serve as
soon as it ends: the cluster counts on its vote.

Only --peer on the command line means one more tier. Peers in the environment or the --config file
are for serve; without --peer, a new cluster is created.`)
	c.Example = `  signalbox cluster restore cluster.backup --data ./restored
  signalbox serve --data ./restored
  signalbox cluster restore cluster.backup --data ./cold --tier cold --peer 10.0.0.1:7071 --join-token-file ./restored/join-token`
	c.Annotations = map[string]string{offline: ""}
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		_, cfg, err := readServer(a, cmd)
		if err != nil {
			return err
		}
		if !cmd.Flags().Changed("peer") { // the instance's own settings do not say that it joins
			cfg.Peers = nil
		}
		from, err := readBackup(inv.longCtx, args[0], backup.Load)
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		datafolder.Private()
		done, err := server.Restore(inv.longCtx, cfg, from)
		if err != nil {
			return err
		}
		return printRestored(inv.printer(), args[0], cfg.DataDir, from, &done)
	})
	addFlags(c.Flags(), scopeServe, restoreFlags...)
	addFlags(c.Flags(), scopeClient, "output", "no-color")
	return c
}

func printRestored(p *printer, path, dir string, from *backup.Source, done *server.Restored) error {
	r := row{{"file", "", path}, {"data", "", dir}, {"sessions", "", done.Sessions},
		{"semaphores", "", done.Semaphores}}
	what, left := path, ""
	if len(from.DataTiers) > 1 || len(done.Left) > 0 {
		r = append(r, field{"tier", "", done.Tier})
		what = fmt.Sprintf("tier %s of %s", done.Tier, path)
	}
	if len(done.Left) > 0 {
		r = append(r, field{"to_be_restored", "", done.Left})
		left = fmt.Sprintf("; then restore %s from the same file, each with --tier and --peer",
			strings.Join(done.Left, ", "))
	}
	return p.message(r,
		"%s is restored to %s: %d sessions, %d semaphores; start it with the same flags: signalbox serve --data %s%s",
		what, dir, done.Sessions, done.Semaphores, dir, left)
}
