package main

import (
	"github.com/signalbox-dev/signalbox/client"
	"github.com/spf13/cobra"
)

func (a *app) lockCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "lock NAME [-- COMMAND [ARG...]]",
		Short: "Run a command while holding a lock",
		Long: `Run a command while holding a lock, and pass its exit code on. The lock is an ephemeral semaphore: it needs no making, and is gone when nobody
holds it or waits for it. Without a command it is held until Ctrl-C.

The command finds the fencing token in SIGNALBOX_TOKEN: give it to what the lock protects with every write. SIGNALBOX_SESSION, SIGNALBOX_NAME, SIGNALBOX_NODE and
SIGNALBOX_ENDPOINTS say what holds it, and where. If the lock is lost, the command and all it
started get SIGTERM, and SIGKILL soon after, before anybody else can be granted the lock; the exit code is then 4.

When the command ends, what it left running is killed, daemons too, and the lock is released after that. SIGTERM, SIGINT and SIGHUP are passed on to the command; a
second one kills it and all it started. The same happens if signalbox itself is killed. Out of reach are processes of other users (sudo), what other services start for
the command (systemd-run, cron), and, on other systems than Linux, daemons that have left the command's process group.`,
		Example: `  signalbox lock backup -- sh -c 'echo working with token $SIGNALBOX_TOKEN'
  signalbox lock catalogue --shared -- sh -c 'echo reading'
  signalbox lock backup --wait 0 -- echo got it at once`,
	}
	shared := c.Flags().Bool("shared", false, "Hold it together with others that say so; without it nobody else holds it.")
	addWaitFlag(c)
	addDataFlags(c, "Data shown beside the holder")
	addFlags(c.Flags(), scopeClient)
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		own, command, err := split(cmd, args)
		if err != nil {
			return err
		}
		wait, err := readWait(cmd)
		if err != nil {
			return err
		}
		data, _, err := inv.readData(cmd)
		if err != nil {
			return err
		}
		mode := client.Exclusive()
		if *shared {
			mode = client.Shared()
		}
		return inv.withSession("lock", func(s *client.Session) error {
			l, err := inv.acquire(s, own[0], wait, mode, client.Data(data))
			if err != nil {
				return err
			}
			return inv.runWithLease(l, command, grantRow(l))
		})
	})
	return c
}

// grantRow is a grant as it is shown, on a line of its own.
func grantRow(l *client.Lease) row {
	return row{
		{"state", "state", "acquired"},
		{"name", "name", l.Name()},
		{"order_id", "token", labelled{"token", l.Token()}},
		{"count", "count", labelled{"count", amount(l.Count())}},
		{"session_id", "", l.Session().ID()},
	}
}
