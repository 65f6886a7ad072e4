package main

import (
	"context"
	"iter"
	"os"
	"strings"
	"syscall"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/spf13/cobra"
)

type runE = func(*cobra.Command, []string) error

// verb makes a command's function from one that needs a server. Settings are checked before fn
// runs. fn connects when it has checked the rest of the command line, so that mistakes are reported
// without a server.
func (a *app) verb(fn func(inv *invocation, cmd *cobra.Command, args []string) error) runE {
	return func(cmd *cobra.Command, args []string) error {
		warnEnvironment(a, os.Environ())
		a.verbPath = strings.TrimPrefix(cmd.CommandPath(), "signalbox ")
		inv, err := a.newInvocation(cmd)
		if err != nil {
			return err
		}
		received.add(notIgnored(syscall.SIGQUIT)...) // which must end a session as well
		inv.longCtx = cmd.Context()
		inv.beginTimeout()
		a.afterRead = inv.beginTimeout
		defer func() { inv.cancel() }()
		defer inv.disconnect()
		return fn(inv, cmd, args)
	}
}

// clientVerb is verb for what needs a connection and nothing else.
func (a *app) clientVerb(fn func(inv *invocation, c *client.Client, args []string) error) runE {
	return a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		c, err := inv.client()
		if err != nil {
			return err
		}
		return fn(inv, c, args)
	})
}

// adminVerb is verb for operators' calls.
func (a *app) adminVerb(fn func(inv *invocation, c *admin.Client, args []string) error) runE {
	return a.clientVerb(func(inv *invocation, c *client.Client, args []string) error {
		return fn(inv, admin.New(c), args)
	})
}

// nodeVerb is verb for what reads from the coordination node, without a session.
func (a *app) nodeVerb(fn func(inv *invocation, n *client.Node, args []string) error) runE {
	return a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		n, err := inv.openNode()
		if err != nil {
			return err
		}
		return fn(inv, n, args)
	})
}

// sessionVerb is verb for what needs a session, which ends with it.
func (a *app) sessionVerb(fn func(inv *invocation, s *client.Session, args []string) error) runE {
	return a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		return inv.withSession(func(s *client.Session) error { return fn(inv, s, args) })
	})
}

// streamVerb is verb for what prints events of NAME without an end. The command gets the flag
// --stop-after.
func (a *app) streamVerb(
	c *cobra.Command, open func(ctx context.Context, n *client.Node, name string) iter.Seq2[row, error],
) *cobra.Command {
	count := c.Flags().Uint("stop-after", 0, "Stop after this many events; 0: never.")
	c.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		return inv.follow(*count, func(n *client.Node) iter.Seq2[row, error] { return open(inv.longCtx, n, args[0]) })
	})
	return c
}

// follow prints each event on a line, until count events, a signal, or an error. A signal is how a
// watch ends well.
func (inv *invocation) follow(count uint, open func(n *client.Node) iter.Seq2[row, error]) error {
	out, err := inv.stream()
	if err != nil {
		return err
	}
	n, err := inv.openNode()
	if err != nil {
		return err
	}
	printed := uint(0)
	for r, err := range open(n) {
		if err != nil && inv.longCtx.Err() != nil {
			return nil
		}
		if err == nil {
			err = out.event(r)
		}
		if err != nil {
			return err
		}
		if printed++; printed == count {
			return nil
		}
	}
	return nil
}

// report is printer.report, in the format that was asked for.
func (inv *invocation) report(err error, r row, format string, args ...any) error {
	return inv.printer().report(err, r, format, args...)
}

func (inv *invocation) list(rows iter.Seq2[row, error], empty string) error {
	var all []row
	for r, err := range rows {
		if err != nil {
			return err
		}
		all = append(all, r)
	}
	return inv.printer().list(all, empty)
}

func each[T, U any](seq iter.Seq2[T, error], convert func(*T) U) iter.Seq2[U, error] {
	return func(yield func(U, error) bool) {
		for x, err := range seq {
			var u U
			if err == nil {
				u = convert(&x)
			}
			if !yield(u, err) {
				return
			}
		}
	}
}
