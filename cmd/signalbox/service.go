package main

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/spf13/cobra"
)

func memberRow(m *client.Member) row {
	return row{
		{"data", "data", m.Data}, {"session_id", "session", sessionID(m.Session)}, {"token", "token", m.Token},
		{"description", "description", m.Description},
		{"since", "since", timestamp{m.Since}},
	}
}

func serviceCmd(a *app) *cobra.Command {
	register := command("register NAME [-- COMMAND [ARG...]]", "Register in a service while a command runs, or until Ctrl-C",
		`Register as a member of a service, with data such as an address, while a command runs or until
Ctrl-C. A member excludes nobody. So if the registration is lost, because the cluster is away for
longer than the session timeout or an operator ends the session, the command keeps running, and the
member is registered again as soon as possible; both are said on standard error. The environment
has the token and the session of the first registration.

With --stop-if-lost, the command and all processes it started are stopped then, as with signalbox
lock, and the exit code is 4.`)
	register.Example = "  signalbox service register api --data 10.0.0.1:80 -- signalbox service ls api"
	wait := addHoldFlags(register, "15s", "for a free unit", "Data of the member, such as its address")
	stop := register.Flags().Bool("stop-if-lost", false, "Stop the command when the registration is lost.")
	register.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		h, err := inv.holdArgs(cmd, args, *wait)
		if err != nil {
			return err
		}
		if !*stop {
			return keepRegistered(inv, h)
		}
		return inv.hold(h, "registered", func(s *client.Session, opts ...client.AcquireOption) (*client.Lease, error) {
			r, err := s.Service(h.name).Register(inv.longCtx, h.data, opts...)
			if err != nil {
				return nil, registerError(h.name, err)
			}
			return r.Lease, nil
		})
	})

	ls := command("ls NAME", "List the members of a service, in order of registration", "")
	ls.RunE = a.nodeVerb(func(inv *invocation, n *client.Node, args []string) error {
		members, err := n.Service(args[0]).List(inv.ctx, client.ReadConsistency(client.Strict))
		if err != nil {
			return err
		}
		return inv.printer().list(rowsOf(members, memberRow), "no members")
	})

	watch := command("watch NAME", "Print the members of a service and each change, until Ctrl-C", "")
	a.streamVerb(watch, func(ctx context.Context, n *client.Node, name string) iter.Seq2[row, error] {
		return each(n.Service(name).Watch(ctx), memberEventRow)
	})
	return group("service", "Service discovery: register, list, watch", "", register, ls, watch)
}

// memberLine is a member without a heading.
func memberLine(m *client.Member) string {
	return strings.TrimRight(fmt.Sprintf("%s  session %d  %s", cell(m.Data), m.Session, cell(m.Description)), " ")
}

func memberEventRow(ev *client.MemberEvent) row {
	r := row{{"time", "time", clockTime{time.Now()}}}
	if ev.Kind == client.MemberSnapshot {
		r = append(r, field{"event", "event", "snapshot"}, field{"members", "", rowsOf(ev.Members, memberRow)},
			field{"", "members", labelled{"members", len(ev.Members)}})
		for i := range ev.Members {
			r = append(r, field{"", "member", subline(memberLine(&ev.Members[i]))})
		}
		return r
	}
	word := map[client.MemberEventKind]string{client.MemberAdded: "added", client.MemberChanged: "changed",
		client.MemberRemoved: "removed", client.MemberInterrupted: "interrupted", client.MemberSynced: "synced"}[ev.Kind]
	if ev.Kind == client.MemberInterrupted || ev.Kind == client.MemberSynced {
		return append(r, field{"event", "event", word})
	}
	r = append(r, field{"event", "event", word}, field{"", "data", ev.Member.Data},
		field{"", "session", labelled{"session", ev.Member.Session}}, field{"", "description", ev.Member.Description})
	for _, f := range memberRow(&ev.Member) {
		r = append(r, field{f.key, "", f.value})
	}
	return r
}
