package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/explain"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
)

func semWhy(a *app) *cobra.Command {
	c := command("why NAME", "Explain a wait: the owners, the queue ahead, deadlocks",
		`Explain a wait: who holds the semaphore, who is ahead in the queue, and what those sessions wait for
themselves, over all semaphores of the node. Sessions that wait for each other are named as a
deadlock, each with what it holds and when its wait ends by itself. A session counts as one thread of
work: a program that shares one among jobs may go on all the same.`)
	session := c.Flags().Uint64("session", 0, "Explain it for this session (default: for a new waiter).")
	last := c.Flags().Bool("last", false,
		"Explain the loss of a hold that ended instead: the last one, or that of --session, from the history.")
	c.RunE = a.nodeVerb(func(inv *invocation, n *client.Node, args []string) error {
		if *last {
			return explainLast(inv.ctx, n, args[0], *session, inv.printer())
		}
		return explainWait(inv.ctx, n, args[0], *session, inv.printer())
	})
	return c
}

// explainWait prints why a session waits for a semaphore; session 0 is a new waiter.
func explainWait(ctx context.Context, n *client.Node, sem string, session uint64, out *printer) error {
	w, err := n.ExplainWait(ctx, sem, session)
	if err != nil {
		return err
	}
	owners, ahead, heading := ownerRows(w.Config, w.Holders), waiterRows(w.Config, w.Ahead), "ahead in the queue"
	if !w.Waiting {
		heading = "in the queue"
	}
	r := row{
		{"name", "", sem}, {"holding", "", w.Holding}, {"waiting", "", w.Waiting}, {"position", "", w.Position},
		{"free", "", amount(w.Free)}, {"limit", "", amount(w.Limit)},
		{"never_granted", "", neverRow(w)}, {"deadlock", "", deadlockRow(w.Deadlock)}, {"unread", "", w.Unread},
	}
	if w.Waiting && w.Config != nil && len(w.Own.Labels)+len(w.Own.Slots) > 0 {
		r = append(r, field{"takes", "slots that it takes", rowsOf(w.Config.Takes(&w.Own), slotRow)})
	}
	r = append(r, field{"owners", "held by", owners}, field{"ahead", heading, ahead})
	if out.format == "table" {
		for _, line := range explain.Lines(nodeFlag(n.Path()), sem, session, w) {
			if _, err := fmt.Fprintln(out.w, terminal.Sanitize(line)); err != nil {
				return err
			}
		}
	} else {
		r = append(r, field{"behind", "", rowsOf(w.Behind, stepRow)})
	}
	return out.item(r)
}

func deadlockRow(d *client.Deadlock) any {
	if d == nil {
		return nil
	}
	ids := make([]sessionID, len(d.Sessions))
	for i, id := range d.Sessions {
		ids[i] = sessionID(id)
	}
	return row{{"sessions", "", ids}, {"confirmed", "", d.Confirmed}, {"steps", "", rowsOf(d.Steps, stepRow)}}
}

func stepRow(s *client.WaitStep) row {
	return row{
		{"session_id", "", sessionID(s.Session)}, {"description", "", s.Description}, {"name", "", s.Name},
		{"by_child", "", s.Name == ""},
		{"count", "", amount(s.Count)}, {"place", "", s.Place}, {"since", "", timestamp{s.Since}},
		{"ends", "", timestamp{s.Ends}},
		{"by_session_id", "", sessionID(s.By)}, {"by_description", "", s.ByDescription}, {"by_holds", "", s.Holds},
		{"by_token", "", s.Token}, {"by_since", "", timestamp{s.BySince}},
	}
}

// neverRow is the waiter that can never be granted, or null.
func neverRow(w *client.QueueStatus) any {
	if x, ok := w.NeverGranted(); ok {
		return waiterRow(&x)
	}
	return nil
}

// explainLast prints why the last hold that was lost ended, who got the units then, and whether its
// holder came back; session 0 is any.
func explainLast(ctx context.Context, n *client.Node, sem string, session uint64, out *printer) error {
	holds, err := n.History(ctx, sem)
	if err != nil {
		return err
	}
	s, err := n.Describe(ctx, sem, client.IncludeOwners(), client.ReadConsistency(client.Strict))
	if err != nil {
		return err
	}
	lost := func(h client.Hold) bool {
		return (session == 0 || h.Session == session) &&
			!slices.Contains([]string{"released", "transferred", "session_closed"}, h.Cause)
	}
	i := slices.IndexFunc(holds, lost)
	if i < 0 {
		return out.message(append(lastRow(sem, &client.Hold{}), field{"next", "", nil}, field{"back", "", nil}),
			"no hold of %s was lost of those that its history keeps: signalbox sem history", sem)
	}
	h := &holds[i]
	lines := []string{fmt.Sprintf("%s held %s for %s, until %s, with token %d: %s", explain.Session(h.Session, h.Description), sem,
		terminal.Age(h.Until.Sub(h.Since)), h.Until.UTC().Format(time.RFC3339), h.Token, strings.ReplaceAll(h.Cause, "_", " "))}
	if h.Detail != "" {
		lines = append(lines, "what the server saw: "+h.Detail)
	}
	// Those that came after it, the first one first.
	var next []client.Owner
	for _, x := range slices.Backward(holds[:i]) {
		next = append(next, client.Owner{Session: x.Session, Description: x.Description, Token: x.Token, Since: x.Since})
	}
	for _, x := range s.Owners {
		if x.Token > h.Token {
			next = append(next, x)
		}
	}
	slices.SortFunc(next, func(a, b client.Owner) int { return a.Since.Compare(b.Since) })
	next = slices.DeleteFunc(next, func(x client.Owner) bool { return x.Since.Before(h.Until) })
	r := lastRow(sem, h)
	say := func(key, format string, found bool, k int) {
		if !found {
			r = append(r, field{key, "", nil})
			return
		}
		x := &next[k]
		lines = append(lines, fmt.Sprintf(format, explain.Session(x.Session, x.Description),
			x.Since.UTC().Format(time.RFC3339), x.Token))
		r = append(r, field{key, "", row{{"session_id", "", sessionID(x.Session)}, {"description", "", x.Description},
			{"since", "", timestamp{x.Since}}, {"token", "", x.Token}}})
	}
	say("next", "then it went to %s, at %s, with token %d", len(next) > 0, 0)
	// A process that is started again has the same name, and another pid.
	name := func(description string) string { name, _, _ := strings.Cut(description, " pid "); return name }
	k := slices.IndexFunc(next, func(x client.Owner) bool { return name(x.Description) == name(h.Description) })
	say("back", "its holder, or another process of its name, got it as %s, at %s, with token %d", k >= 0 && h.Description != "", k)
	if out.format == "table" {
		for _, line := range lines {
			if _, err := fmt.Fprintln(out.w, terminal.Sanitize(line)); err != nil {
				return err
			}
		}
		return nil
	}
	return out.item(r)
}

func lastRow(sem string, h *client.Hold) row {
	return row{{"name", "", sem}, {"lost", "", h.Token != 0}, {"session_id", "", sessionID(h.Session)},
		{"description", "", h.Description}, {"token", "", h.Token}, {"since", "", timestamp{h.Since}},
		{"until", "", timestamp{h.Until}}, {"cause", "", h.Cause}, {"detail", "", h.Detail}}
}
