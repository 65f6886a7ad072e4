package main

import (
	"context"
	"fmt"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/explain"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/spf13/cobra"
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
