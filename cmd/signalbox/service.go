package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/spf13/cobra"
)

func memberRow(m *client.Member) row {
	return row{
		{"data", "data", m.Data}, {"session_id", "session", m.Session}, {"token", "token", m.Token},
		{"description", "description", m.Description},
		{"since", "since", timestamp{m.Since}},
	}
}

func serviceCmd(a *app) *cobra.Command {
	register := command("register NAME [-- COMMAND [ARG...]]", "Register in a service while a command runs, or until Ctrl-C",
		`Register as a member of a service, with data such as an address, while a command runs or until
Ctrl-C. If the registration is lost, the command and all processes it started are stopped as with
signalbox lock, and the exit code is 4.`)
	register.Example = "  signalbox service register api --data 10.0.0.1:80 -- signalbox service ls api"
	wait := addHoldFlags(register, "15s", "for a free unit", "Data of the member, such as its address")
	register.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		h, err := inv.holdArgs(cmd, args, *wait)
		if err != nil {
			return err
		}
		return inv.hold(h, "registered", func(s *client.Session, opts ...client.AcquireOption) (*client.Lease, error) {
			r, err := s.Service(h.name).Register(inv.longCtx, h.data, opts...)
			if errors.Is(err, client.ErrNotAcquired) {
				err = fmt.Errorf("%w: all units of %q are held, by a lock or by as many members as its limit allows", err, h.name)
			}
			if err != nil {
				return nil, err
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
		client.MemberRemoved: "removed"}[ev.Kind]
	r = append(r, field{"event", "event", word}, field{"", "data", ev.Member.Data},
		field{"", "session", labelled{"session", ev.Member.Session}}, field{"", "description", ev.Member.Description})
	for _, f := range memberRow(&ev.Member) {
		r = append(r, field{f.key, "", f.value})
	}
	return r
}
