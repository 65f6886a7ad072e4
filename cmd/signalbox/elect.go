package main

import (
	"context"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/spf13/cobra"
)

func (a *app) electCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "elect NAME [-- COMMAND [ARG...]]",
		Short: "Campaign in an election and run a command while leading, or observe it",
		Long: `Campaign in an election, and run a command while leading. The candidate that has waited longest
leads next. SIGNALBOX_TOKEN has the fencing token of the term. If leadership is lost, the command
and all processes it started are stopped, as with signalbox lock, before anyone else can lead.
When the command ends, it resigns. Without a command it leads until Ctrl-C.

With --observe it prints the leader, and each change.`,
		Example: `  signalbox elect payments --data host-1 -- sh -c 'echo leading with token $SIGNALBOX_TOKEN'
  signalbox elect payments --observe --count 1`,
	}
	observe := c.Flags().Bool("observe", false, "Print the leader and each change instead of campaigning.")
	count := c.Flags().Uint("count", 0, "With --observe: stop after this many changes; 0: never.")
	addWaitFlag(c)
	addDataFlags(c, "Data shown to observers")
	addFlags(c.Flags(), scopeClient)
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		own, command, err := split(cmd, args)
		if err != nil {
			return err
		}
		if *count != 0 && !*observe {
			return usagef("--count goes with --observe; without it there is nothing to count")
		}
		if *observe {
			if len(command) > 0 {
				return usagef("--observe and a command are both given; keep one")
			}
			return inv.observe(own[0], *count)
		}
		wait, err := readWait(cmd)
		if err != nil {
			return err
		}
		data, _, err := inv.readData(cmd)
		if err != nil {
			return err
		}
		return inv.withSession("elect", func(s *client.Session) error {
			l, err := inv.acquireWith(s, own[0], wait, []client.AcquireOption{client.Data(data)}, func(opts []client.AcquireOption) (*client.Lease, error) {
				term, err := s.Election(own[0]).Campaign(inv.longCtx, opts...)
				return term.Lease, err
			})
			if err != nil {
				return err
			}
			return inv.runWithLease(l, command, grantRow(l))
		})
	})
	return c
}

func leaderRow(l *client.Leader) row {
	r := row{{"time", "time", clockTime{time.Now()}}, {"leads", "", l.Exists}}
	if !l.Exists {
		return append(r, field{"", "leader", "nobody leads"})
	}
	return append(r, field{"order_id", "", l.Token}, field{"session_id", "", l.Session}, field{"data", "", l.Data}, field{"description", "", l.Description},
		field{"since", "", timestamp{l.Since}}, field{"", "leader", "leader"}, field{"", "data", l.Data}, field{"", "token", labelled{"token", l.Token}},
		field{"", "session", labelled{"session", l.Session}}, field{"", "description", l.Description})
}

func (inv *invocation) observe(name string, count uint) error {
	out, err := inv.stream()
	if err != nil {
		return err
	}
	n, err := inv.openNode()
	if err != nil {
		return err
	}
	return printEach(inv.longCtx, count, n.Election(name).Observe(inv.longCtx), func(l client.Leader) error { return out.event(leaderRow(&l)) })
}

// printEach prints what a watch tells until count items, a signal, or an error. A signal is how a
// watch ends well.
func printEach[T any](ctx context.Context, count uint, seq func(yield func(T, error) bool), print func(T) error) (err error) {
	printed := uint(0)
	for item, e := range seq {
		if e != nil {
			if ctx.Err() != nil {
				return nil
			}
			return e
		}
		if err := print(item); err != nil {
			return err
		}
		if printed++; printed == count {
			return nil
		}
	}
	return nil
}
