package main

import (
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/explain"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/spf13/cobra"
)

func lockCmd(a *app) *cobra.Command {
	c := command("lock NAME... [-- COMMAND [ARG...]]", "Run a command while holding a lock, or several",
		`Run a command while holding a lock, and exit with its exit code. The lock is an ephemeral
semaphore: it exists while it has owners or waiters. Without a command it is held until Ctrl-C.

The environment variable SIGNALBOX_TOKEN has the fencing token: pass it to the protected resource
with every write. SIGNALBOX_SESSION, SIGNALBOX_NAME, SIGNALBOX_NODE and SIGNALBOX_ENDPOINTS
describe the lease. SIGNALBOX_LEASES has it as JSON:
[{"name":"backup","token":7,"count":"max"}], each count as a text. If the lock is lost, the command and all processes it started get SIGTERM, and
SIGKILL soon after, before the lock can be granted to anyone else. The exit code is then 4. The same
happens a little before --max-hold is over. Other codes than ours are chosen with the flags that end
with -exit-code, if the command has the same.

When the command ends, the processes it left running are killed, daemons included, and then the
lock is released. The same happens if signalbox itself is killed.

A session that COMMAND starts, by signalbox or by a program that reads its settings from the
environment, names this one as its parent. This one gives nothing back before that has ended, so
deadlocks of nested commands are seen by signalbox sem why and --fail-on-deadlock. A lock of a name
that SIGNALBOX_LEASES has is refused at once, with exit code 3.

With several names, up to 16, the command runs while all locks are held. They are acquired in the
order of their bytes, so such commands cannot deadlock with each other. While some locks are held,
the wait for the next one lasts as long as its queue. --hold-while-waiting bounds that wait: all
locks are released then, and after a short pause it starts again; a lock whose queue takes longer is
never acquired. Each lock has a token of its own: SIGNALBOX_LEASES has all of them, and
SIGNALBOX_TOKEN and SIGNALBOX_NAME are empty. If one lock is lost, the command is stopped.

Signals to signalbox:

  signal                  waiting, or no command  while the command runs
  TERM, INT, QUIT         release, stop waiting   to its process group; the next one kills all
  HUP                     release, stop waiting   to the command, each time; it never counts
  USR1, USR2, WINCH       ignored                 to the command, each time
  PWR, 35 to 64 (Linux)   ignored                 to the command, each time
  STOP, TSTP, TTIN, TTOU  not caught              not caught; when the lease ends, so does the command
  KILL, ABRT and others   not caught              not caught; all processes are killed

Signals that signalbox was started to ignore, for example by nohup, are ignored. In the foreground
of a terminal, or with a terminal as its input, the command gets INT, QUIT, HUP and WINCH from the
terminal itself. They are not passed on and do not count then: send TERM twice to kill a command
that ignores Ctrl-C.

Not covered are processes of other users (sudo) and processes that other services start for the
command (systemd-run, cron). If signalbox and the process that watches over the command are killed
at the same time, only the command itself ends with them. On systems other than Linux, daemons that
left the command's process group are not covered either.`)
	c.Example = `  signalbox lock backup -- sh -c 'echo working with token $SIGNALBOX_TOKEN'
  signalbox lock catalogue --shared -- sh -c 'echo reading'
  signalbox lock backup --wait 0 -- echo got it at once
  signalbox lock backup --max-hold 1h -- sh -c 'echo ended after an hour if it hangs'
  signalbox lock accounts orders -- sh -c 'echo "$SIGNALBOX_LEASES"'`
	shared := c.Flags().Bool("shared", false, "Share the lock with other --shared holders (default: exclusive).")
	whileHolding := parsedVar(c.Flags(), "hold-while-waiting", "forever", parseForeverOr,
		"With several names: how long to wait for one while holding others, 1s to 1h, or forever.")
	deadlock := addDeadlockFlag(c)
	maxHold := addMaxHold(c)
	wait := addHoldFlags(c, "forever", "in the queue", "Data shown beside the holder")
	settings.AddFlags(c.Flags(), settings.Client)
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		h, names, err := inv.holdArgsOfMany(cmd, args, *wait)
		switch {
		case err != nil:
			return err
		case len(names) == 1 && cmd.Flag("hold-while-waiting").Changed:
			return usagef("--hold-while-waiting goes with several names; one lock holds nothing while it waits")
		}
		if err := inv.outer.refuseNested(h.wait, *shared, names...); err != nil {
			return err
		}
		if len(names) > 1 && len(h.command) == 0 {
			inv.note("signalbox: no command was given, so %s are locked until Ctrl-C; a command goes behind --: signalbox lock %s -- %s\n",
				terminal.Sanitize(explain.List(names)), terminal.Sanitize(names[0]), terminal.Sanitize(strings.Join(names[1:], " ")))
		}
		how := []client.AcquireOption{client.Exclusive()}
		if *shared {
			how[0] = client.Shared()
		}
		if *deadlock {
			how = append(how, client.FailOnDeadlock())
		}
		how = append(how, maxHold()...)
		if len(names) > 1 {
			return inv.holdAll(h, names, append(how, client.HoldWhileWaiting(*whileHolding))...)
		}
		return inv.hold(h, "acquired", func(s *client.Session, opts ...client.AcquireOption) (*client.Lease, error) {
			return s.Acquire(inv.longCtx, h.name, append(opts, how...)...)
		})
	})
	return c
}

// parseForeverOr reads a duration, or forever.
func parseForeverOr(text string) (time.Duration, error) {
	if text == "forever" {
		return client.Forever, nil
	}
	return readDuration(text)
}
