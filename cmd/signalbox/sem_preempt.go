package main

import (
	"syscall"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/spf13/cobra"
)

var preemptModes = choicesOf(client.PreemptOff, client.PreemptLower, client.PreemptAny)

// preemptFlags are the flags of a semaphore's options about preemption.
type preemptFlags struct {
	mode           *client.PreemptMode
	grace, minHold *time.Duration
}

func addPreemptFlags(c *cobra.Command) preemptFlags {
	f := c.Flags()
	return preemptFlags{
		mode: parsedVar(f, "preempt", "", preemptModes.parse,
			"Which owners waiters may preempt: off, lower (owners with a lower --priority) or any. "+
				"The owners are told, see --preempt-signal of signalbox sem acquire."),
		grace: parsedVar(f, "grace", "", parseAging,
			"With --preempt: how long a preempted owner has to yield, 1s to 24h, or 0 for owners that are only told. "+
				"Then its lease ends by itself; one whose client is not heard of keeps it, and shows as silent."),
		minHold: parsedVar(f, "min-hold", "", parseAging,
			"With --grace: how long an owner holds the units at least before the grace begins, 0 to 24h."),
	}
}

func (w *preemptFlags) set(c *cobra.Command, o *client.SemaphoreConfig) {
	setGiven(c, "preempt", &o.Preempt, w.mode)
	setGiven(c, "grace", &o.Grace, w.grace)
	setGiven(c, "min-hold", &o.MinHold, w.minHold)
}

// setGiven sets a field if its flag is given.
func setGiven[T any](c *cobra.Command, flag string, field, value *T) {
	if c.Flag(flag).Changed {
		*field = *value
	}
}

// preemptRow adds a semaphore's own rule of preemption.
func preemptRow(r row, o *client.SemaphoreConfig) row {
	if o.Preempt == client.PreemptOff {
		return r
	}
	return append(r, field{"preempt", "preempt", o.Preempt.String()}, field{"grace_ms", "grace", ms(o.Grace)},
		field{"min_hold_ms", "min hold", ms(o.MinHold)})
}

// preemptSignals are the signals that a command can get when its units are preempted.
var preemptSignals = choices[syscall.Signal]{{"TERM", syscall.SIGTERM}, {"INT", syscall.SIGINT},
	{"HUP", syscall.SIGHUP},
	{"QUIT", syscall.SIGQUIT}, {"USR1", syscall.SIGUSR1}, {"USR2", syscall.SIGUSR2}}

func addPreemptSignal(c *cobra.Command) *syscall.Signal {
	return parsedVar(c.Flags(), "preempt-signal", "", preemptSignals.parse,
		"Signal that COMMAND gets, once, when a waiter preempts its units: TERM, INT, HUP, QUIT, USR1 or USR2. Default: none.")
}
