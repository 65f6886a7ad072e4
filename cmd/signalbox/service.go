package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/spf13/cobra"
)

func memberRow(m *client.Member) row {
	return row{
		{"data", "data", m.Data}, {"session_id", "session", m.Session}, {"order_id", "order id", m.Token}, {"description", "description", m.Description},
		{"since", "since", timestamp{m.Since}},
	}
}

func (a *app) serviceCmd() *cobra.Command {
	register := &cobra.Command{
		Use: "register NAME [-- COMMAND [ARG...]]", Short: "Register in a service while a command runs, or until Ctrl-C",
		Long: `Register as a member of a service, with data such as an address, while a command runs or until
Ctrl-C. If the registration is lost, the command and all processes it started are stopped as with
signalbox lock, and the exit code is 4.`,
		Example: "  signalbox service register api --data 10.0.0.1:80 -- signalbox service ls api",
	}
	register.Flags().String("wait", "15s", "How long to wait for a free unit: a duration up to 24h, 0 to not wait, or forever; then exit code 3.")
	addDataFlags(register, "Data of the member, such as its address")
	register.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
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
		return inv.withSession("service register", func(s *client.Session) error {
			l, err := inv.acquireWith(s, own[0], wait, nil, func(opts []client.AcquireOption) (*client.Lease, error) {
				r, err := s.Service(own[0]).Register(inv.longCtx, data, opts...)
				if err != nil {
					return nil, err
				}
				return r.Lease, nil
			})
			if errors.Is(err, client.ErrNotAcquired) {
				err = fmt.Errorf("%w: all units of %q are held, by a lock or by as many members as its limit allows", err, own[0])
			}
			if err != nil {
				return err
			}
			granted := grantRow(l)
			granted[0].value = "registered"
			return inv.runWithLease(l, command, granted)
		})
	})

	ls := &cobra.Command{Use: "ls NAME", Short: "List the members of a service, in order of registration", Args: cobra.ExactArgs(1)}
	ls.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		n, err := inv.openNode()
		if err != nil {
			return err
		}
		members, err := n.Service(args[0]).List(inv.ctx, client.ReadConsistency(client.Strict))
		if err != nil {
			return err
		}
		return inv.printer().list(rowsOf(members, memberRow), "no members")
	})

	watch := &cobra.Command{Use: "watch NAME", Short: "Print the members of a service and each change, until Ctrl-C", Args: cobra.ExactArgs(1)}
	count := watch.Flags().Uint("count", 0, "Stop after this many lines; 0: never.")
	watch.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		out, err := inv.stream()
		if err != nil {
			return err
		}
		n, err := inv.openNode()
		if err != nil {
			return err
		}
		return printEach(inv.longCtx, *count, n.Service(args[0]).Watch(inv.longCtx), func(ev client.MemberEvent) error {
			return out.event(memberEventRow(&ev))
		})
	})

	c := group("service", "Service discovery: register, list, watch", "", register, ls, watch)
	for _, s := range c.Commands() {
		addFlags(s.Flags(), scopeClient)
	}
	return c
}

// memberLine is a member without a heading.
func memberLine(m *client.Member) string {
	return strings.TrimRight(fmt.Sprintf("%s  session %d  %s", cell(m.Data), m.Session, cell(m.Description)), " ")
}

func memberEventRow(ev *client.MemberEvent) row {
	r := row{{"time", "time", clockTime{time.Now()}}}
	if ev.Kind == client.MemberSnapshot {
		r = append(r, field{"event", "event", "snapshot"}, field{"members", "", rowsOf(ev.Members, memberRow)}, field{"", "members", labelled{"members", len(ev.Members)}})
		for i := range ev.Members {
			r = append(r, field{"", "member", subline(memberLine(&ev.Members[i]))})
		}
		return r
	}
	word := map[client.MemberEventKind]string{client.MemberAdded: "added", client.MemberChanged: "changed", client.MemberRemoved: "removed"}[ev.Kind]
	r = append(r, field{"event", "event", word}, field{"", "data", ev.Member.Data}, field{"", "session", labelled{"session", ev.Member.Session}}, field{"", "description", ev.Member.Description})
	for _, f := range memberRow(&ev.Member) {
		r = append(r, field{f.key, "", f.value})
	}
	return r
}
