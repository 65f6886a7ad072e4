package main

import (
	"github.com/signalbox-dev/signalbox/client"
	"github.com/spf13/cobra"
)

func (a *app) lockCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "lock NAME [-- COMMAND [ARG...]]",
		Short: "Run a command while holding a lock",
		Long: `Run a command while holding a lock, and exit with its exit code. The lock is an ephemeral
semaphore: it exists while it has owners or waiters. Without a command it is held until Ctrl-C.

The environment variable SIGNALBOX_TOKEN has the fencing token: pass it to the protected resource
with every write. SIGNALBOX_SESSION, SIGNALBOX_NAME, SIGNALBOX_NODE and SIGNALBOX_ENDPOINTS
describe the lease. If the lock is lost, the command and all processes it started get SIGTERM, and
SIGKILL soon after, before the lock can be granted to anyone else. The exit code is then 4.

When the command ends, the processes it left running are killed, daemons included, and then the
lock is released. SIGTERM, SIGINT and SIGHUP are forwarded to the command; a second one kills it
and all processes it started. The same happens if signalbox itself is killed.

Not covered are processes of other users (sudo) and processes that other services start for the
command (systemd-run, cron). On systems other than Linux, daemons that left the command's process
group are not covered either.`,
		Example: `  signalbox lock backup -- sh -c 'echo working with token $SIGNALBOX_TOKEN'
  signalbox lock catalogue --shared -- sh -c 'echo reading'
  signalbox lock backup --wait 0 -- echo got it at once`,
	}
	shared := c.Flags().Bool("shared", false, "Share the lock with other --shared holders (default: exclusive).")
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
