package main

import (
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-dev/signalbox/client"
)

// boundFlags are the flags of a semaphore's options about how long a hold lasts.
type boundFlags struct {
	maxHold *time.Duration
	extend  *bool
}

func addBoundFlags(c *cobra.Command) boundFlags {
	f := c.Flags()
	return boundFlags{
		maxHold: parsedVar(f, "max-hold", "", parseAging,
			"How long a hold lasts at most, 1s to 720h, or 0 for no bound. Then it ends by itself; present holds keep what they have."),
		extend: f.Bool("extend", false, "With --max-hold: owners may ask for more time, as often as they like."),
	}
}

func (b *boundFlags) set(c *cobra.Command, o *client.SemaphoreConfig) {
	setGiven(c, "max-hold", &o.MaxHold, b.maxHold)
	setGiven(c, "extend", &o.Extend, b.extend)
}

// boundRow adds a semaphore's own bounds.
func boundRow(r row, o *client.SemaphoreConfig) row {
	if o.MaxHold == 0 {
		return r
	}
	return append(r, field{"max_hold_ms", "max hold", ms(o.MaxHold)}, field{"extend", "extend", o.Extend})
}

// leftField is how much time an owner has left; empty: its hold does not end by itself.
func leftField(o *client.Owner) field {
	if o.Left == 0 {
		return field{"left_ms", "left", nil}
	}
	return field{"left_ms", "left", ms(o.Left)}
}

// ownerRows are the owners of a semaphore with these options, nil for none. Holds may end by themselves
// there too.
func ownerRows(o *client.SemaphoreConfig, owners []client.Owner) []row {
	switch {
	case o != nil:
		rows := rowsOf(owners, queuedOwnerRow)
		hideIdle(o, rows)
		return rows
	case slices.ContainsFunc(owners, func(o client.Owner) bool { return o.Left > 0 }):
		return rowsOf(owners, func(o *client.Owner) row { return append(ownerRow(o), leftField(o)) })
	}
	return rowsOf(owners, ownerRow)
}

// addMaxHold adds the flag of an acquire for how long its hold lasts; nil: it was not given.
func addMaxHold(c *cobra.Command) func() []client.AcquireOption {
	d := parsedVar(c.Flags(), "max-hold", "", readDuration,
		"How long to hold at most, 1s to 720h. Then COMMAND is stopped as when the lease is lost, with exit code 4, so that one that "+
			"hangs does not block others (default: the semaphore's --max-hold, else no bound).")
	return func() []client.AcquireOption {
		if !c.Flag("max-hold").Changed {
			return nil
		}
		return []client.AcquireOption{client.MaxHold(*d)}
	}
}

// heldFor is how long a lease is held if its session is not heard of.
func heldFor(l *client.Lease) time.Duration {
	d := l.Session().Timeout()
	if until := l.Until(); !until.IsZero() {
		d = min(d, max(0, time.Until(until).Truncate(time.Millisecond)))
	}
	return d
}

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
