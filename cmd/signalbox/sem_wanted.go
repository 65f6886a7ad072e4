package main

import (
	"syscall"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/spf13/cobra"
)

var wantedModes = choicesOf(client.WantedOff, client.WantedHigher, client.WantedAny)

// wantedFlags are the flags of a semaphore's options about owners that waiters want units back from.
type wantedFlags struct {
	mode           *client.WantedMode
	grace, minHold *time.Duration
}

func addWantedFlags(c *cobra.Command) wantedFlags {
	f := c.Flags()
	return wantedFlags{
		mode: parsedVar(f, "wanted", "", wantedModes.parse,
			"Whose units waiters may want back: off, higher (of owners with a lower --priority) or any. "+
				"The owners are told, see --wanted-signal of signalbox sem acquire."),
		grace: parsedVar(f, "grace", "", parseAging,
			"With --wanted: how long a wanted owner has to yield, 1s to 24h, or 0 for owners that are only told. "+
				"Then its lease ends by itself; one whose client is not heard of keeps it, and shows as silent."),
		minHold: parsedVar(f, "min-hold", "", parseAging,
			"With --grace: how long an owner holds the units at least before the grace begins, 0 to 24h."),
	}
}

func (w *wantedFlags) options(c *cobra.Command) (opts []client.SemaphoreOption) {
	for _, x := range []struct {
		flag   string
		option client.SemaphoreOption
	}{
		{"wanted", client.Wanted(*w.mode)}, {"grace", client.Grace(*w.grace)}, {"min-hold", client.MinHold(*w.minHold)},
	} {
		if c.Flag(x.flag).Changed {
			opts = append(opts, x.option)
		}
	}
	return opts
}

// wantedRow adds what a semaphore has of the same.
func wantedRow(r row, o *client.SemaphoreOptions) row {
	if o.Wanted == client.WantedOff {
		return r
	}
	return append(r, field{"wanted", "wanted", o.Wanted.String()}, field{"grace_ms", "grace", ms(o.Grace)},
		field{"min_hold_ms", "min hold", ms(o.MinHold)})
}

// wantedSignals are those that a command can get when its units are wanted.
var wantedSignals = choices[syscall.Signal]{{"TERM", syscall.SIGTERM}, {"INT", syscall.SIGINT}, {"HUP", syscall.SIGHUP},
	{"QUIT", syscall.SIGQUIT}, {"USR1", syscall.SIGUSR1}, {"USR2", syscall.SIGUSR2}}

func addWantedSignal(c *cobra.Command) *syscall.Signal {
	return parsedVar(c.Flags(), "wanted-signal", "", wantedSignals.parse,
		"Signal that COMMAND gets, once, when a waiter wants the units back: TERM, INT, HUP, QUIT, USR1 or USR2. Default: none.")
}
