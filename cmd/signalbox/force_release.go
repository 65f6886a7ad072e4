package main

import (
	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/spf13/cobra"
)

// forceWarning is what all verbs say that take something from a client that works.
const forceWarning = `A client that cannot be reached keeps its lease until it reconnects or its session times out. The
next owner works beside it in that time. This breaks, on purpose, the rule that a client's lease
ends before anyone else is granted it. A resource that checks fencing tokens is safe, because
later grants have higher tokens; any other is not. Stop the holder's process first if you can.

Needs the right admin on the node's path. Each use is written to the audit log with identity, time
and reason.`

func semForceRelease(a *app) *cobra.Command {
	c := command("force-release NAME", "Release units of an owner; its session stays",
		`Release units of a semaphore that owners hold: one session, the owner with one token, or all
current owners. The units are granted to the next waiters at once. The owners' sessions stay.
Their leases end with the reason as soon as the server reaches them.

Grants are named by their tokens, which are never reused: repeating the command, however late,
releases no newer grant. If the answer is lost, the command is sent again. The number of owners
that it prints leaves out those that the first sending released.

`+forceWarning)
	c.Example = `  signalbox sem force-release slots --session 35184372088833 --dry-run
  signalbox sem force-release slots --token 3 --reason 'host is broken'`
	var by struct {
		session, token uint64
		all            bool
	}
	c.Flags().Uint64Var(&by.session, "session", 0, "Release what this session holds.")
	c.Flags().Uint64Var(&by.token, "token", 0, "Release the grant with this token.")
	c.Flags().BoolVar(&by.all, "all-owners", false, "Release all current owners.")
	optional(c.Flags(), "session", "token")
	g := addGuard(c, "sem force-release")
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		if err := g.check(); err != nil {
			return err
		}
		given := 0
		for _, name := range []string{"session", "token", "all-owners"} {
			if cmd.Flag(name).Changed {
				given++
			}
		}
		if given != 1 || by.session == 0 && by.token == 0 && !by.all {
			return usagef("give one of --session ID, --token N and --all-owners; `signalbox sem describe %s` shows the owners",
				args[0])
		}
		n, err := inv.openNode()
		if err != nil {
			return err
		}
		sem, err := n.Describe(inv.ctx, args[0], client.IncludeOwners(), client.ReadConsistency(client.Strict))
		if err != nil {
			return err
		}
		var owners []client.Owner
		for _, o := range sem.Owners {
			if by.all || by.session != 0 && o.Session == by.session || by.token != 0 && o.Token == by.token {
				owners = append(owners, o)
			}
		}
		released := uint64(0)
		if len(owners) > 0 && !g.dryRun {
			if released, err = admin.OfNode(n).ForceRelease(inv.ctx, args[0], owners[0].Token, owners[len(owners)-1].Token,
				g.reason); err != nil {
				return err
			}
		}
		return printForced(inv.printer(), args[0], owners, released, g.dryRun)
	})
	return c
}

func printForced(p *printer, name string, owners []client.Owner, released uint64, dry bool) error {
	r := row{{"name", "", name}, {"dry_run", "", dry}, {"released", "", released},
		{"owners", "", rowsOf(owners, ownerRow)}}
	if p.format != "table" {
		return p.item(r)
	}
	switch {
	case len(owners) == 0:
		return p.message(r, "%s has no such owner; nothing is released", name)
	case dry:
		if err := p.list(rowsOf(owners, ownerRow), ""); err != nil {
			return err
		}
		return p.message(r, "dry run: these owners of %s keep their units", name)
	}
	return p.message(r, "force-released %s; owners that lost their units: %d", name, released)
}
