package main

import (
	"iter"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/spf13/cobra"
)

func electCmd(a *app) *cobra.Command {
	c := command("elect NAME [-- COMMAND [ARG...]]",
		"Campaign in an election and run a command while leading, or observe it",
		`Campaign in an election, and run a command while leading. The candidate that has waited longest
leads next. SIGNALBOX_TOKEN has the fencing token of the term. If leadership is lost, the command
and all processes it started are stopped, as with signalbox lock, before anyone else can lead.
When the command ends, it resigns. Without a command it leads until Ctrl-C.

With --priority the candidate of the highest priority leads. The name is an election of its own kind
then: all candidates give one. If a candidate of a higher priority than the leader's comes, the leader
has to yield 10 s later, and not before it has led for 40 s. Its command gets --preempt-signal at once,
and may end by itself.

With --observe it prints the leader, and each change.`)
	c.Example = `  signalbox elect payments --data host-1 -- sh -c 'echo leading with token $SIGNALBOX_TOKEN'
  signalbox elect payments --observe --stop-after 1
  signalbox elect billing --priority 8 -- sh -c 'echo preferred, with token $SIGNALBOX_TOKEN'`
	observe := c.Flags().Bool("observe", false, "Print the leader and each change instead of campaigning.")
	priority := c.Flags().Int("priority", client.DefaultPriority,
		"Priority of the candidate, 0 to 9, the highest first, in an election by priority (default: an election in order of arrival).")
	optional(c.Flags(), "priority")
	signal := addPreemptSignal(c)
	count := c.Flags().Uint("stop-after", 0, "With --observe: stop after this many changes; 0: never.")
	wait := addHoldFlags(c, "forever", "in the queue", "Data shown to observers")
	settings.AddFlags(c.Flags(), settings.Client)
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		name, command, err := split(cmd, args)
		switch {
		case err != nil:
			return err
		case *count != 0 && !*observe:
			return usagef("--stop-after goes with --observe; without it there is nothing to count")
		case *observe && len(command) > 0:
			return usagef("--observe and a command are both given; keep one")
		case *observe:
			return inv.follow(*count, func(n *client.Node) iter.Seq2[row, error] {
				return each(n.Election(name).Observe(inv.longCtx), leaderRow)
			})
		}
		h, err := inv.holdArgs(cmd, args, *wait)
		byPriority := cmd.Flag("priority").Changed
		switch h.preempt = *signal; {
		case err != nil:
			return err
		case h.preempt != 0 && !byPriority:
			return usagef("--preempt-signal goes with --priority; in order of arrival nobody preempts the leader")
		case h.preempt != 0 && len(command) == 0:
			return usagef("--preempt-signal goes with a command; there is none after --")
		}
		if !byPriority { // which is a semaphore of another kind
			if err := inv.outer.refuseNested(h.wait, true, h.name); err != nil {
				return err
			}
		}
		return inv.hold(h, "acquired", func(s *client.Session, opts ...client.AcquireOption) (*client.Lease, error) {
			campaign := s.Election(h.name).Campaign
			if byPriority {
				campaign = s.Election(h.name, client.ElectByPriority()).Campaign
				opts = append(opts, client.Priority(*priority))
			}
			term, err := campaign(inv.longCtx, opts...)
			return term.Lease, err
		})
	})
	return c
}

func leaderRow(l *client.Leader) row {
	r := row{{"time", "time", clockTime{time.Now()}}, {"leads", "", l.Exists}}
	if !l.Exists {
		return append(r, field{"", "leader", "nobody leads"})
	}
	return append(r, field{"token", "", l.Token}, field{"session_id", "", sessionID(l.Session)},
		field{"data", "", l.Data},
		field{"description", "", l.Description},
		field{"since", "", timestamp{l.Since}}, field{"", "leader", "leader"}, field{"", "data", l.Data},
		field{"", "token", labelled{"token", l.Token}},
		field{"", "session", labelled{"session", l.Session}}, field{"", "description", l.Description})
}
