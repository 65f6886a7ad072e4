package main

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/explain"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/spf13/cobra"
)

func semCmd(a *app) *cobra.Command {
	return group("sem", "Semaphores: create, acquire, inspect",
		`Semaphores have a name, a limit of units, and data. Sessions acquire counts of them, in strict order of arrival, or by a policy: priorities, or fair shares by key.
Units may be slots, which have names and labels.`,
		semCreate(a), semAlter(a), semAcquire(a), semRelease(a), semTransfer(a), semDescribe(a), semUpdate(a), semResize(a),
		semDelete(a),
		semForceRelease(a), semDrain(a), semUndrain(a), semHistory(a), semLs(a), semWhy(a), semWatch(a))
}

func semCreate(a *app) *cobra.Command {
	c := command("create NAME", "Create a persistent semaphore", "")
	c.Example = `  signalbox sem create slots --limit 3 --data 'three at a time'
  signalbox sem create gpu --slot g0:mem=40 --slot g1:mem=80 --policy fair --weight research=2`
	limit := addLimitFlag(c)
	addDataFlags(c, "Data of the semaphore", maxData)
	flags, reason := addQueueFlags(c), addReason(c)
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		data, _, err := inv.readData(cmd)
		if err != nil {
			return err
		}
		var config client.SemaphoreConfig
		if *limit, config, err = flags.semaphore(cmd, *limit, nil); err != nil {
			return err
		}
		return inv.withSession(func(s *client.Session) error {
			if config.History == 0 {
				config.History = client.NoHistory
			}
			err := s.Create(inv.ctx, args[0], *limit, data, config, client.Reason(*reason))
			return inv.report(err, row{{"name", "", args[0]}, {"limit", "", amount(*limit)}, {"created", "", true}},
				"created %s with limit %s", args[0], cell(amount(*limit)))
		})
	})
	return c
}

// limitOf returns the limit of a semaphore with this number of slots, 0 for none.
func limitOf(c *cobra.Command, limit, slots uint64) (uint64, error) {
	switch {
	case slots > 0 && c.Flag("limit").Changed && limit != slots:
		return 0, usagef("--limit is %s and the number of slots %d; leave --limit out: it is their number",
			cell(amount(limit)), slots)
	case slots > 0:
		return slots, nil
	}
	return limit, nil
}

func semAcquire(a *app) *cobra.Command {
	c := command("acquire NAME [-- COMMAND [ARG...]]",
		"Acquire units, and hold them while a command runs, or until Ctrl-C",
		`Acquire units of a semaphore, and hold them while a command runs, or until Ctrl-C. The units are
released when this command ends; if it is killed, after the session's timeout. The processes that
COMMAND started are ended as with signalbox lock. Where units have names, SIGNALBOX_SLOT has the
first slot, and SIGNALBOX_SLOTS all, with commas between them.

With --session-file FILE it returns as soon as the units are acquired, and they stay held for the
session's timeout. FILE holds the session for "signalbox sem release NAME --session-file FILE".
With it, run the command again before the timeout is over to hold them for longer; the session
keeps its timeout, unless --session-timeout gives another one. If that is interrupted before the
server has answered, what the session holds of NAME may be released. Run the command again with
the same file to extend the session.`)
	c.Example = `  signalbox sem acquire slots --count 2 -- sh -c 'echo two slots, token $SIGNALBOX_TOKEN'`
	count := parsedVar(c.Flags(), "count", "1", parseAmount, "Units to acquire, 1 to the limit.")
	createLimit := parsedVar(c.Flags(), "create-limit", "", parseAmount,
		"Create the semaphore with this limit if it does not exist. One that exists keeps its limit, and the difference is shown. Not with --ephemeral.")
	sessionFile := c.Flags().String("session-file", "", "File to save the session in, so that it outlives this command.")
	ephemeral := c.Flags().Bool("ephemeral", false,
		"Use an ephemeral semaphore: it exists while it has owners or waiters, with the limit max.")
	asks := addAcquireFlags(c)
	signal := addPreemptSignal(c)
	wait := addHoldFlags(c, "forever", "in the queue", "Data shown beside the owner")
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		h, err := inv.holdArgs(cmd, args, *wait)
		switch h.preempt = *signal; {
		case err != nil:
			return err
		case h.preempt != 0 && len(h.command) == 0:
			return usagef("--preempt-signal goes with a command; there is none after --")
		}
		asked, err := asks.options(cmd)
		if err != nil {
			return err
		}
		if err := inv.outer.refuseNested(h.wait, *count != client.Max, h.name); err != nil {
			return err
		}
		own := append([]client.AcquireOption{client.Count(*count)}, asked...)
		if *ephemeral {
			own = append(own, client.Ephemeral())
		}
		if cmd.Flags().Changed("create-limit") {
			if *ephemeral {
				return usagef("--ephemeral and --create-limit are both given; an ephemeral semaphore has the limit max")
			}
			own = append(own, client.CreateLimit(*createLimit))
		}
		acquire := func(s *client.Session, opts ...client.AcquireOption) (*client.Lease, error) {
			if cmd.Flags().Changed("create-limit") {
				warnOfLimit(inv, h.name, *createLimit)
			}
			asks.warnOfPolicy(inv, cmd, h.name)
			l, err := s.Acquire(inv.longCtx, h.name, append(opts, own...)...)
			return l, slotError(inv, err, h.name, *asks.slots, *asks.labels)
		}
		switch {
		case *sessionFile == "":
			return inv.hold(h, "acquired", acquire)
		case len(h.command) > 0:
			return usagef("--session-file and a command are both given; with --session-file the units stay held after this command")
		}
		return inv.acquireWithFile(*sessionFile, h, acquire)
	})
	return c
}

// addLimitFlag adds the flag for a new semaphore's units.
func addLimitFlag(c *cobra.Command) *uint64 {
	return parsedVar(c.Flags(), "limit", "1", parseAmount, "Number of units, 1 to max.")
}

// warnOfLimit warns that a semaphore exists with another limit than it was to be made with.
func warnOfLimit(inv *invocation, name string, limit uint64) {
	n, err := inv.openNode()
	if err != nil {
		return // acquiring says why
	}
	s, err := n.Describe(inv.ctx, name, client.ReadConsistency(client.Strict))
	if err == nil && s.Limit != limit && !s.Ephemeral {
		inv.note("signalbox: %s exists with limit %s, not %s of --create-limit; signalbox sem resize changes it\n",
			terminal.Sanitize(name), cell(amount(s.Limit)), cell(amount(limit)))
	}
}

func semRelease(a *app) *cobra.Command {
	c := command("release NAME --session-file FILE", "Release units of a saved session, or leave the queue",
		`Release the units that a saved session holds, or end its wait. FILE has the session. Units held by
a running command are released when that command ends. An operator can use "signalbox sem
force-release", or end the session with "signalbox session kill". The exit code is 4 if there was
nothing to release, because the hold had ended before.`)
	sessionFile := c.Flags().String("session-file", "",
		"File with the session, as written by sem acquire --session-file.")
	c.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		if *sessionFile == "" {
			return usagef("--session-file FILE is missing: it names the session that holds the units; an operator can release them with `signalbox sem force-release`")
		}
		return inv.releaseWithFile(*sessionFile, args[0])
	})
	return c
}

func semTransfer(a *app) *cobra.Command {
	c := command("transfer NAME --to SESSION --session-file FILE",
		"Hand units of a saved session over to one that waits",
		`Hand the units that a saved session holds over to a session that waits for them, past all that are
ahead of it in the queue. FILE has the session that holds. "signalbox sem describe NAME" shows who waits.
While SESSION does not wait, or waits for more than is held, nothing changes.`)
	to := c.Flags().Uint64("to", 0, "Session that gets the units.")
	optional(c.Flags(), "to")
	sessionFile := c.Flags().String("session-file", "",
		"File with the session, as written by sem acquire --session-file.")
	c.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		if *sessionFile == "" || *to == 0 {
			return usagef("--session-file FILE or --to SESSION is missing: one names who holds the units, the other who gets them")
		}
		return inv.transferWithFile(*sessionFile, args[0], *to)
	})
	return c
}

func ownerRow(o *client.Owner) row {
	return row{
		{"token", "token", o.Token}, {"session_id", "session", sessionID(o.Session)}, {"count", "count", amount(o.Count)},
		{"data", "data", o.Data},
		{"description", "description", o.Description}, {"since", "since", timestamp{o.Since}},
	}
}

func waiterRow(w *client.Waiter) row {
	timeout := ms(w.Timeout)
	if w.Timeout == client.Forever {
		timeout = millis(client.Max)
	}
	return row{
		{"place", "place", w.Place}, {"session_id", "session", sessionID(w.Session)},
		{"count", "count", amount(w.Count)}, {"data", "data", w.Data},
		{"description", "description", w.Description}, {"since", "since", timestamp{w.Since}},
		{"timeout_ms", "timeout", timeout},
	}
}

func rowsOf[T any](items []T, f func(*T) row) []row {
	rows := make([]row, len(items))
	for i := range items {
		rows[i] = f(&items[i])
	}
	return rows
}

func semDescribe(a *app) *cobra.Command {
	c := command("describe NAME", "Show a semaphore, its owners and its waiters", "")
	strict := c.Flags().Bool("strict", false, "Read with strict consistency, whatever the node's setting.")
	c.RunE = a.nodeVerb(func(inv *invocation, n *client.Node, args []string) error {
		opts := []client.ReadOption{client.IncludeOwners(), client.IncludeWaiters(), client.IncludeSlots()}
		if *strict {
			opts = append(opts, client.ReadConsistency(client.Strict))
		}
		s, err := n.Describe(inv.ctx, args[0], opts...)
		if err != nil {
			return err
		}
		r := optionRow(row{
			{"name", "name", s.Name}, {"node", "node", inv.node}, {"data", "data", s.Data}, {"version", "version", s.Version},
			{"count", "count", amount(s.Used)}, {"limit", "limit", amount(s.Limit)}, {"ephemeral", "ephemeral", s.Ephemeral},
			{"created_at", "created", timestamp{s.CreatedAt}},
		}, s)
		return inv.printer().item(append(r,
			field{"owners", "owners", ownerRows(s.Config, s.Owners)},
			field{"waiters", "waiters", waiterRows(s.Config, s.Waiters)}))
	})
	return c
}

// addReason adds the flag for why something is changed.
func addReason(c *cobra.Command) *string {
	return c.Flags().String("reason", "", "Reason, for the audit log.")
}

func semUpdate(a *app) *cobra.Command {
	c := command("update NAME", "Replace a semaphore's data, held or not", "")
	c.Example = "  signalbox sem update slots --data 'two at a time' --if-version 1"
	ifVersion := c.Flags().Uint64("if-version", 0, "Only if the data has this version (default: any version).")
	optional(c.Flags(), "if-version")
	addDataFlags(c, "The new data", maxData)
	reason := addReason(c)
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		data, given, err := inv.readData(cmd)
		if err != nil {
			return err
		}
		if !given {
			return usagef("--data or --data-file is missing; give --data '' for none")
		}
		opts := []client.WriteOption{client.Reason(*reason)}
		if cmd.Flag("if-version").Changed {
			if *ifVersion == 0 {
				return usagef("--if-version 0 is no semaphore's version, which is at least 1; make a semaphore with `signalbox sem create`")
			}
			opts = append(opts, client.IfVersion(*ifVersion))
		}
		return inv.withSession(func(s *client.Session) error {
			v, err := s.Update(inv.ctx, args[0], data, opts...)
			return inv.report(err, row{{"name", "", args[0]}, {"version", "", v}}, "%s has version %d", args[0], v)
		})
	})
	return c
}

func semResize(a *app) *cobra.Command {
	c := command("resize NAME --limit N", "Change a limit; current owners keep their units", "")
	limit := parsedVar(c.Flags(), "limit", "", parseAmount, "The new limit, 1 to max.")
	reason := addReason(c)
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		if !cmd.Flags().Changed("limit") {
			return usagef("--limit is missing; the form is: %s", usageLine(cmd))
		}
		return inv.withSession(func(s *client.Session) error {
			if err := s.Resize(inv.ctx, args[0], *limit, client.Reason(*reason)); err != nil {
				return err
			}
			w, text := impossible(inv, args[0])
			return inv.printer().message(row{{"name", "", args[0]}, {"limit", "", amount(*limit)},
				{"never_granted", "", neverRow(w)}},
				"%s has limit %s"+text, args[0], cell(amount(*limit)))
		})
	})
	return c
}

// impossible is the queue of a semaphore that was just changed, and a line about a waiter in it
// that can never be granted, if there is one. It was changed all the same if it cannot be read.
func impossible(inv *invocation, name string) (w *client.QueueStatus, line string) {
	w = new(client.QueueStatus) // of everybody who waits
	if n, err := inv.openNode(); err == nil {
		d, err := n.Describe(inv.ctx, name, client.IncludeWaiters(), client.IncludeSlots(),
			client.ReadConsistency(client.Strict))
		if err == nil {
			w.Ahead, w.Limit, w.Config = d.Waiters, d.Limit, d.Config
		}
	}
	if line = explain.Never(name, w); line != "" {
		line = "\n" + strings.ReplaceAll(line, "%", "%%") // it becomes part of a format
	}
	return w, line
}

func semDelete(a *app) *cobra.Command {
	c := command("delete NAME", "Delete a persistent semaphore", "")
	g := addGuard(c, "sem delete")
	c.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		if err := g.check(); err != nil {
			return err
		}
		if g.dryRun {
			n, err := inv.openNode()
			if err != nil {
				return err
			}
			sem, err := n.Describe(inv.ctx, args[0], client.ReadConsistency(client.Strict))
			if err != nil {
				return err
			}
			if sem.Ephemeral {
				return fmt.Errorf("%s is ephemeral and goes with its last owner; "+
					"release its owners with signalbox sem force-release", args[0])
			}
			return inv.printer().message(row{{"name", "", args[0]}, {"deleted", "", false}, {"dry_run", "", true},
				{"owners", "", sem.NumOwners}, {"waiters", "", sem.NumWaiters}},
				"dry run: with %s would go: %s, %s", args[0], count(sem.NumOwners, "owner"), count(sem.NumWaiters, "waiter"))
		}
		return inv.withSession(func(s *client.Session) error {
			err := s.Delete(inv.ctx, args[0], g.force, client.Reason(g.reason))
			return inv.report(err, row{{"name", "", args[0]}, {"deleted", "", true}}, "deleted %s", args[0])
		})
	})
	return c
}

func semRow(s *client.SemaphoreInfo) row {
	return row{
		{"name", "name", s.Name}, {"count", "count", amount(s.Used)}, {"limit", "limit", amount(s.Limit)},
		{"owners", "owners", s.NumOwners},
		{"waiters", "waiters", s.NumWaiters}, {"ephemeral", "ephemeral", s.Ephemeral},
		{"version", "version", s.Version}, {"data_bytes", "data bytes", s.DataLen},
	}
}

func semLs(a *app) *cobra.Command {
	c := command("ls [PREFIX]", "List semaphores by prefix, in order of name", "")
	all := c.Flags().Bool("all", false,
		"Include semaphores of configurations, whose names begin with "+client.ConfigPrefix+".")
	c.RunE = a.nodeVerb(func(inv *invocation, n *client.Node, args []string) error {
		return inv.list(each(semaphores(inv.ctx, n, strings.Join(args, ""), *all), semRow), "no semaphores")
	})
	return c
}

// semaphores lists semaphores by prefix. Those of configurations are left out unless all are asked
// for, or the prefix is theirs.
func semaphores(ctx context.Context, n *client.Node, prefix string, all bool) iter.Seq2[client.SemaphoreInfo, error] {
	return func(yield func(client.SemaphoreInfo, error) bool) {
		for s, err := range n.List(ctx, prefix) {
			if all || err != nil || !strings.HasPrefix(s.Name, client.ConfigPrefix) ||
				strings.HasPrefix(prefix, client.ConfigPrefix) {
				if !yield(s, err) {
					return
				}
			}
		}
	}
}

func semWatch(a *app) *cobra.Command {
	c := command("watch NAME", "Print a semaphore's state and each change, until Ctrl-C",
		`Print the state of a semaphore and then each change. It need not exist yet. With --prefix, NAME is a prefix of many names.`)
	prefix := c.Flags().Bool("prefix", false, "Watch all names that begin with NAME.")
	return a.streamVerb(c, func(ctx context.Context, n *client.Node, name string) iter.Seq2[row, error] {
		if *prefix {
			return each(n.Watch(ctx, name, client.Prefix()), eventRow)
		}
		return each(n.Watch(ctx, name), eventRow)
	})
}

func eventRow(ev *client.Event) row {
	word := map[client.EventKind]string{client.EventChanged: "changed", client.EventDeleted: "deleted",
		client.EventSynced: "synced", client.EventInterrupted: "interrupted"}[ev.Kind]
	if ev.Created {
		word = "created"
	}
	r := row{{"time", "time", clockTime{time.Now()}}, {"event", "event", word}}
	if ev.Kind != client.EventChanged && ev.Kind != client.EventDeleted {
		return r
	}
	r = append(r, field{"name", "name", ev.Name})
	if ev.Kind == client.EventChanged {
		r = append(r, field{"limit", "", amount(ev.Limit)}, field{"version", "", ev.Version}, field{"data", "", ev.Data})
		if ev.LimitChanged || ev.Created {
			r = append(r, field{"", "limit", labelled{"limit", amount(ev.Limit)}})
		}
		if ev.DataChanged && len(ev.Data) > 0 {
			r = append(r, field{"", "data", labelled{"data", ev.Data}})
		} else if ev.DataChanged && !ev.Created {
			r = append(r, field{"", "data", "no data"})
		}
	}
	for _, part := range []struct {
		key, sign string
		owners    []client.Owner
	}{{"added", "+", ev.Added}, {"updated", "~", ev.Updated}, {"removed", "-", ev.Removed}} {
		r = append(r, field{part.key, "", rowsOf(part.owners, ownerRow)})
		for _, o := range part.owners {
			text := fmt.Sprintf("%sowner token %d count %s", part.sign, o.Token, cell(amount(o.Count)))
			if len(o.Data) > 0 {
				text += " data " + cell(o.Data)
			}
			r = append(r, field{"", "owner", text})
		}
	}
	return r
}
