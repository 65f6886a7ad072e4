package main

import (
	"context"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/spf13/cobra"
)

func onceCmd(a *app) *cobra.Command {
	c := command("once NAME --every PERIOD -- COMMAND [ARG...]", "Run a command once per period, on whichever host comes first",
		`Run a command unless it has run in this period, on this host or on another one: a task in the
crontab of several hosts runs once. If it has run, the exit code is 0 at once.

A lock is not enough for that. "signalbox lock job -- cmd" in three crontabs runs cmd three times,
one after the other: when the first host has finished, the lock is free. Who runs a task has to be
remembered after the lock is released, for as long as the period.

Periods begin at multiples of PERIOD since 1970 in UTC, by the clock of the host, which also starts
the crontab's line. The period is decided when this command starts.

  - It runs late if the command still runs from an earlier period: it waits until that is done.
  - It is skipped if that lasts beyond the end of the period, with exit code 3; and if no host
    starts it in the period.
  - Stopped by a signal while it waits, it gives the period back: it runs if it is started again.
  - A command that fails does not run again in its period, nor does one whose host dies: the period
    is taken before the command starts.

SIGNALBOX_TOKEN has the number of the period, its start in seconds since 1970. It rises with each
run: use it as the fencing token. The command is stopped as with signalbox lock. What is remembered
is the data of the semaphore NAME.`)
	c.Example = `  signalbox once report --every 1m -- sh -c 'echo the report of $SIGNALBOX_TOKEN'`
	var every time.Duration
	durationVar(c.Flags(), &every, "every", 0, "Length of a period, whole seconds.")
	wait := addHoldFlags(c, "forever", "for an earlier run, at most until the period ends", "Data shown beside the holder")
	addFlags(c.Flags(), scopeClient)
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		h, err := inv.holdArgs(cmd, args, *wait)
		switch {
		case err != nil:
			return err
		case len(h.command) == 0:
			return usagef("the command is missing; the form is: %s", usageLine(cmd))
		case !cmd.Flag("every").Changed:
			return usagef("--every is missing; give the length of a period, like --every 1m")
		case every < client.MinPeriod || every%time.Second != 0:
			return usagef("--every %s is not a number of whole seconds, at least 1; give a period like 1m", every)
		}
		return inv.withSession(func(s *client.Session) error {
			opts, done := inv.waitOptions(s, h)
			defer done()
			ran, err := s.Once(h.name, every).Run(inv.longCtx, func(_ context.Context, p client.Period) error {
				done()
				return inv.runWithLease(p.Lease, p.Number, h, nil)
			}, opts...)
			if err != nil && !ran {
				return inv.waitError(h.name, err)
			}
			return err
		})
	})
	return c
}
