package main

import (
	"strings"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/spf13/cobra"
)

// forceWarning is what all verbs say that take something from a client that works.
const forceWarning = `A client that cannot be reached goes on believing in what it held until it is heard of again, or its session's timeout is over. Whoever is
granted it meanwhile works beside it: this breaks, on purpose, the rule that a client stops believing in a lease before anybody else is granted it. What checks fencing
tokens is safe, because those of later grants are higher; anything else is not. Stop the holder's process first if you can.

Needs the right admin on the node's path. Who did it, when, what was taken and why are lines of the audit log.`

// addForceFlags adds the flags of such a verb. The reason is wanted unless it is a dry run.
func addForceFlags(c *cobra.Command) (reason func() (string, error), dry *bool) {
	text := c.Flags().String("reason", "", "Why, for the client and the audit log; must be given.")
	dry = c.Flags().Bool("dry-run", false, "Show what would be taken, and take nothing.")
	return func() (string, error) {
		if strings.TrimSpace(*text) == "" && !*dry {
			return "", usagef("--reason is missing: say why, for the client that loses what it holds and for the audit log")
		}
		return *text, nil
	}, dry
}

func (a *app) semForceRelease() *cobra.Command {
	c := &cobra.Command{
		Use: "force-release NAME", Short: "Take units away from an owner whose session lives on", Args: cobra.ExactArgs(1),
		Long: `Take units of a semaphore away from owners: of one session, of the owner with one token, or of all there are now. They are free at once, and go to whoever waits; the
owners' sessions live on, and their leases end with the reason as soon as the server can tell them.

What is taken is named by tokens, which are order ids and never come twice: a repeat, however late, takes nothing that was granted since.

` + forceWarning,
		Example: `  signalbox sem force-release slots --session 35184372088833 --dry-run
  signalbox sem force-release slots --token 3 --reason 'host is broken'`,
	}
	var by struct {
		session, token uint64
		all            bool
	}
	c.Flags().Uint64Var(&by.session, "session", 0, "Take what this session holds.")
	c.Flags().Uint64Var(&by.token, "token", 0, "Take what is held under this token.")
	c.Flags().BoolVar(&by.all, "all-owners", false, "Take from everybody who is an owner now.")
	reason, dry := addForceFlags(c)
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		why, err := reason()
		if err != nil {
			return err
		}
		given := 0
		for _, name := range []string{"session", "token", "all-owners"} {
			if cmd.Flag(name).Changed {
				given++
			}
		}
		if given != 1 || by.session == 0 && by.token == 0 && !by.all {
			return usagef("give one of --session ID, --token N and --all-owners; `signalbox sem describe %s` shows the owners", args[0])
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
		if len(owners) > 0 && !*dry {
			if released, err = n.ForceRelease(inv.ctx, args[0], owners[0].Token, owners[len(owners)-1].Token, why); err != nil {
				return err
			}
		}
		return inv.printer().forced(args[0], owners, released, *dry)
	})
	return c
}

// forced shows what was taken, or would be.
func (p *printer) forced(name string, owners []client.Owner, released uint64, dry bool) error {
	r := row{{"name", "", name}, {"dry_run", "", dry}, {"released", "", released}, {"owners", "", rowsOf(owners, ownerRow)}}
	if p.format != "table" {
		return p.item(r)
	}
	switch {
	case len(owners) == 0:
		return p.message(r, "%s has no such owner; nothing is taken", sanitize(name))
	case dry:
		if err := p.list(rowsOf(owners, ownerRow), ""); err != nil {
			return err
		}
		return p.message(r, "this is a dry run: nothing is taken from these owners of %s", sanitize(name))
	}
	return p.message(r, "%s is taken away from its owners; their number: %d", sanitize(name), released)
}
