package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/recipes"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/spf13/cobra"
)

func onceCmd(a *app) *cobra.Command {
	c := command("once NAME --every PERIOD -- COMMAND [ARG...]",
		"Run a command once per period, on whichever host comes first",
		`Run a command unless it has run in this period, on this host or on another one: a task in the
crontab of several hosts runs once. If it has run, the exit code is 0 at once, or
--skip-exit-code, and who ran it, when and with which result is said on standard error; with
-o json it is a document on standard output instead.

A lock is not enough for that. "signalbox lock job -- cmd" in three crontabs runs cmd three times,
one after the other: when the first host has finished, the lock is free. The run has to be
remembered after the lock is released, for as long as the period.

Periods begin at multiples of PERIOD since 1970 in UTC, by the clock of the host, which also starts
the crontab's line. The period is decided when this command starts.

  - It runs late if the command still runs from an earlier period: it waits until that is done.
  - It is skipped if that lasts beyond the end of the period, with exit code 3; and if no host
    starts it in the period.
  - Stopped by a signal while it waits, it gives the period back: it runs if it is started again.
  - A command that fails does not run again in its period, nor does one whose host dies: the period
    is taken before the command starts. With --until-success it does, when this is started again.
    Beside a run it waits for the result. A result that did not reach the cluster is a failure, so
    the command may run again after a success.
  - With --again it runs now, even if it has run: for a person at a terminal.

SIGNALBOX_PERIOD has the number of the period, its start in seconds since 1970. SIGNALBOX_TOKEN has
the fencing token, which rises with each run, repeats too. The command is stopped as with signalbox
lock. What is remembered is the data of the semaphore NAME.`)
	c.Example = `  signalbox once report --every 1m -- sh -c 'echo the report of $SIGNALBOX_PERIOD'
  signalbox once report --every 1m --until-success -- sh -c 'echo a host tries after one that failed'
  signalbox once report --every 1m --again -- sh -c 'echo once more, by hand'`
	var every time.Duration
	durationVar(c.Flags(), &every, "every", 0, "Length of a period, whole seconds.")
	optional(c.Flags(), "every")
	untilSuccess := c.Flags().Bool("until-success", false,
		"Run again in the period if the last run has failed, or did not end.")
	again := c.Flags().Bool("again", false, "Run now, even if it has run in the period.")
	skip := parsedVar(c.Flags(), "skip-exit-code", "0", parseExitCode,
		"Exit code if the command has run in the period, 0 to 255.")
	wait := addHoldFlags(c, "forever", "for an earlier run, at most until the period ends",
		"Data shown beside the holder")
	settings.AddFlags(c.Flags(), settings.Client)
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		h, err := inv.holdArgs(cmd, args, *wait)
		switch {
		case err != nil:
			return err
		case len(h.command) == 0:
			return usagef("the command is missing; the form is: %s", usageLine(cmd))
		case !cmd.Flag("every").Changed:
			return usagef("--every is missing; give the length of a period, like --every 1m")
		case every < recipes.MinPeriod || every%time.Second != 0:
			return usagef("--every %s is not a number of whole seconds, at least 1; give a period like 1m", every)
		}
		var how []recipes.OnceOption
		if *untilSuccess {
			how = append(how, recipes.UntilSuccess())
		}
		if *again {
			how = append(how, recipes.Again())
		}
		if len(how) > 0 {
			if err := inv.outer.refuseNested(h.wait, false, h.name); err != nil {
				return err
			}
		}
		return inv.withSession(func(s *client.Session) error {
			opts, done := inv.waitOptions(s, h)
			defer done()
			task := recipes.NewOnce(s, h.name, every, how...)
			var lease *client.Lease
			ran, err := task.Run(inv.longCtx, func(_ context.Context, p recipes.Period) error {
				done()
				lease = p.Lease
				return runForPeriod(inv, p, h)
			}, opts...)
			switch {
			case ran:
				inv.release(lease.Release, h.name, s) // answered, but for an outage
				return err
			case err != nil:
				return inv.waitError(h.name, err)
			}
			last, err := task.Last(inv.ctx)
			if err != nil {
				return err
			}
			if err := reportSkipped(inv, h.name, &last); err != nil || *skip == exitOK {
				return err
			}
			return &codeError{code: *skip, quiet: true}
		})
	})
	return c
}

// runForPeriod runs the command of a period. The lease outlives it: the result is kept before
// another host may begin a repeat.
func runForPeriod(inv *invocation, p recipes.Period, args holdArgs) error {
	l := p.Lease
	keep := func(context.Context) error { return nil }
	h := heldLeases{leases: []*client.Lease{l}, ctx: l.Context(), release: keep, preempted: l.Preempted()}
	env := append(inv.holdEnv(l.Name(), l.Token(), l.Session()), leaseEnv(l)...)
	return inv.runWith(h, l.Name(), args.command, nil, append(env, "SIGNALBOX_PERIOD="+strconv.FormatUint(p.Number, 10)))
}

// reportSkipped says which run is why this one is skipped.
func reportSkipped(inv *invocation, name string, last *recipes.OnceRun) error {
	p := inv.printer()
	result := onceResult(last)
	if p.format != "table" {
		return p.document(row{
			{"state", "", "skipped"}, {"name", "", name}, {"period", "", last.Period},
			{"session_id", "", sessionID(last.SessionID)},
			{"description", "", last.By}, {"began", "", timestamp{last.Began}}, {"ended", "", timestamp{last.Ended}},
			{"result", "", result}, {"error", "", last.Error},
		})
	}
	const again = "; run it now with --again, or have the next host of the period do it with --until-success"
	text := "its result is not known: it was killed, or could not reach the cluster" + again
	switch result {
	case "running":
		text = "it has not ended"
	case "succeeded":
		text = fmt.Sprintf("it succeeded after %s", last.Ended.Sub(last.Began).Round(time.Millisecond))
	case "failed":
		text = fmt.Sprintf("it failed after %s: %s", last.Ended.Sub(last.Began).Round(time.Millisecond), last.Error) + again
	}
	inv.note("signalbox: %s is skipped, because session %d (%s) began a run of this period at %s; %s\n",
		terminal.Sanitize(name), last.SessionID, terminal.Sanitize(last.By), last.Began.Format(time.RFC3339),
		terminal.Sanitize(text))
	return nil
}

// onceResult is a run's result in JSON.
func onceResult(last *recipes.OnceRun) string {
	switch {
	case last.Running:
		return "running"
	case last.Ended.IsZero():
		return "unknown"
	case last.Succeeded():
		return "succeeded"
	}
	return "failed"
}
