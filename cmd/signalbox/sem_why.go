package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/spf13/cobra"
)

func semWhy(a *app) *cobra.Command {
	c := command("why NAME", "Explain a wait: the owners, the queue ahead, deadlocks",
		`Explain a wait: who holds the semaphore, who is ahead in the queue, and what those sessions wait for
themselves, over all semaphores of the node. Sessions that wait for each other are named as a
deadlock, each with what it holds and when its wait ends by itself. A session counts as one thread of
work: a program that shares one among jobs may go on all the same.`)
	session := c.Flags().Uint64("session", 0, "Explain it for this session (default: for a new waiter).")
	c.RunE = a.nodeVerb(func(inv *invocation, n *client.Node, args []string) error {
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
	waiter := waiterRow
	if w.Options != nil {
		waiter = queuedWaiterRow
	}
	owners, ahead := ownerRows(w.Options, w.Holders), rowsOf(w.Ahead, waiter)
	if w.Options != nil {
		hideIdle(w.Options, owners)
		hideIdle(w.Options, ahead)
		for _, r := range ahead {
			r[0].title = "place" // the token is drawn at the grant
		}
	}
	r := row{
		{"name", "", sem}, {"holding", "", w.Holding}, {"waiting", "", w.Waiting}, {"position", "", w.Position},
		{"free", "", amount(w.Free)}, {"limit", "", amount(w.Limit)},
		{"never_granted", "", neverRow(w)}, {"deadlock", "", deadlockRow(w.Deadlock)}, {"unread", "", w.Unread},
		{"owners", "held by", owners}, {"ahead", "ahead in the queue", ahead},
	}
	if w.Waiting && w.Options != nil && len(w.Own.Labels)+len(w.Own.Slots) > 0 {
		r = append(r, field{"takes", "slots that it takes", rowsOf(w.Options.Takes(&w.Own), slotRow)})
	}
	if out.format == "table" {
		for _, line := range whyLines(sem, session, w) {
			if _, err := fmt.Fprintln(out.w, sanitize(line)); err != nil {
				return err
			}
		}
	} else {
		r = append(r, field{"behind", "", rowsOf(w.Behind, stepRow)})
	}
	return out.item(r)
}

// hideIdle leaves columns out of a table that mean nothing under these options.
func hideIdle(o *client.SemaphoreOptions, rows []row) {
	idle := map[string]bool{
		"priority": o.Policy != client.PolicyPriority, "key": o.Policy != client.PolicyFair,
		"labels": len(o.Slots) == 0, "slots": len(o.Slots) == 0,
		"wanted": o.Wanted == client.WantedOff, "silent": o.Wanted == client.WantedOff, "left_ms": true,
	}
	for _, r := range rows {
		for _, f := range r {
			idle[f.key] = idle[f.key] && (f.key != "left_ms" || f.value == nil)
		}
	}
	for _, r := range rows {
		for i := range r {
			if idle[r[i].key] {
				r[i].title = ""
			}
		}
	}
}

// whyLines are the sentences before the tables.
func whyLines(sem string, session uint64, w *client.QueueStatus) []string {
	lines := []string{whySentence(sem, session, w)}
	for _, text := range []string{endsSentence(w.Holders), neverSentence(w)} {
		if text != "" {
			lines = append(lines, text)
		}
	}
	lines = append(lines, wantedLines(w)...)
	if d := w.Deadlock; d != nil {
		lines = append(lines, deadlockLines(d, session)...)
	} else {
		for _, s := range w.Behind {
			lines = append(lines, "in turn, "+s.String())
		}
	}
	if w.Unread != "" {
		lines = append(lines, "not read, and taken to go on: "+w.Unread)
	}
	return lines
}

// maxWantedLines is how many owners have a sentence; the table has all.
const maxWantedLines = 5

// wantedLines say which owners are to give back what they have for a waiter, and which of them do
// not.
func wantedLines(w *client.QueueStatus) (lines []string) {
	for i := range w.Holders {
		o := &w.Holders[i]
		what := strings.Join(o.Slots, ", ")
		if what == "" {
			what = "what it holds"
		}
		text := fmt.Sprintf("session %d", o.Session)
		if o.Description != "" {
			text += " (" + o.Description + ")"
		}
		switch {
		case o.Silent && o.Wanted:
			text += " was asked for " + what + " and does not answer; it is free when that session releases it or ends, or with " +
				"`signalbox sem force-release`"
		case o.Wanted:
			text += " was asked to give back " + what
		default:
			continue
		}
		if lines = append(lines, text); len(lines) == maxWantedLines {
			break
		}
	}
	return lines
}

func deadlockLines(d *client.Deadlock, session uint64) []string {
	text := fmt.Sprintf("deadlock: %d sessions wait for each other, and none of them can go on", len(d.Sessions))
	if !d.Confirmed {
		text = fmt.Sprintf("it looks like a deadlock of %d sessions, which a second read did not confirm; ask again", len(d.Sessions))
	}
	if session != 0 && !d.Has(session) {
		text += fmt.Sprintf("; session %d waits behind them", session)
	}
	lines := []string{text + ":"}
	for _, s := range d.Steps {
		lines = append(lines, "  "+s.String())
	}
	return append(lines, "it ends when one of these waits ends, or with `signalbox session kill` of one of the sessions")
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
		{"count", "", amount(s.Count)}, {"place", "", s.Place}, {"since", "", timestamp{s.Since}}, {"ends", "", timestamp{s.Ends}},
		{"by_session_id", "", sessionID(s.By)}, {"by_description", "", s.ByDescription}, {"by_holds", "", s.Holds},
		{"by_token", "", s.Token}, {"by_since", "", timestamp{s.BySince}},
	}
}

// neverRow is the waiter that can never be granted, null if there is none.
func neverRow(w *client.QueueStatus) any {
	if x, ok := w.NeverGranted(); ok {
		return waiterRow(&x)
	}
	return nil
}

// neverSentence names the waiter that can never be granted, and the consequence; empty if there is
// none.
func neverSentence(w *client.QueueStatus) string {
	x, ok := w.NeverGranted()
	if !ok {
		return ""
	}
	own := w.Waiting && x.Token == w.Own.Token
	if x.Count <= w.Limit {
		return slotSentence(w, &x, own)
	}
	text := fmt.Sprintf("the waiter with token %d wants %s of limit %s and can never be granted",
		x.Token, cell(amount(x.Count)), cell(amount(w.Limit)))
	if !own {
		text += ", and nobody behind it"
	}
	return text + ", unless the limit is raised or it leaves the queue"
}

// slotSentence is about a waiter that wants more slots than are granted any more.
func slotSentence(w *client.QueueStatus, x *client.Waiter, own bool) string {
	var drained []string
	for _, slot := range w.Options.Takes(x) {
		if slot.State == client.SlotDrained || slot.State == client.SlotDraining {
			drained = append(drained, slot.Name)
		}
	}
	text := fmt.Sprintf("the waiter with place %d wants %s and cannot be granted", x.Token, wanted(x, w.Options))
	if len(drained) > 0 {
		text += " until `signalbox sem undrain` of " + strings.Join(drained, ", ")
	} else {
		text += ": slots that it takes are not in the list any more"
	}
	if !own {
		text += "; those behind it that take the same slots wait for it"
	}
	return text
}

// wanted is what a waiter wants.
func wanted(x *client.Waiter, o *client.SemaphoreOptions) string {
	text := cell(amount(x.Count))
	switch {
	case len(x.Slots) > 0:
		return "exactly " + strings.Join(x.Slots, ", ")
	case len(x.Labels) > 0:
		return text + " with " + strings.Join(x.Labels, " and ")
	case o != nil && len(o.Slots) > 0:
		return text + " of any"
	}
	return text
}

func whySentence(name string, session uint64, w *client.QueueStatus) string {
	free := fmt.Sprintf("%s of %s free", cell(amount(w.Free)), cell(amount(w.Limit)))
	switch {
	case w.Holding:
		return fmt.Sprintf("session %d holds %s", session, name)
	case w.Waiting && w.Options != nil && (w.Position == 0 || w.Own.Rank > 0):
		at := fmt.Sprintf("is number %d in the queue of %s", w.Position, name)
		switch w.Position {
		case 0:
			at = fmt.Sprintf("waits for %s behind the first 16 that are served next", name)
		case 1:
			at = fmt.Sprintf("is next in the queue of %s", name)
		}
		return fmt.Sprintf("session %d %s and wants %s; %s; %s", session, at, wanted(&w.Own, w.Options), orderClause(&w.Own, w.Options), free)
	case w.Waiting && len(w.Ahead) == 0:
		return fmt.Sprintf("session %d is first in the queue of %s and wants %s; %s",
			session, name, cell(amount(w.Own.Count)), free)
	case w.Waiting:
		return fmt.Sprintf("session %d is number %d in the queue of %s; the queue is strict: first come, first served; %s",
			session, w.Position, name, free)
	case session != 0:
		return fmt.Sprintf("session %d neither holds %s nor waits for it; %s", session, name, free)
	case len(w.Ahead) > 0 && w.Options != nil && w.Options.Policy != client.PolicyFIFO:
		return fmt.Sprintf("%d wait for %s; %s; %s", len(w.Ahead), name, orderClause(nil, w.Options), free)
	case len(w.Ahead) > 0:
		return fmt.Sprintf("a new waiter for %s would be number %d in the queue; %s", name, len(w.Ahead)+1, free)
	default:
		return fmt.Sprintf("nobody waits for %s; %s", name, free)
	}
}

// orderClause says in which order a semaphore with options serves, and what that means for a waiter,
// nil for one that would come now.
func orderClause(x *client.Waiter, o *client.SemaphoreOptions) string {
	var text, its string
	switch o.Policy {
	case client.PolicyPriority:
		if text = "the highest priority is served first"; o.Aging > 0 {
			text += fmt.Sprintf(", and each %s of waiting counts as one level", shortDuration(o.Aging))
		}
		if x != nil {
			its = fmt.Sprintf("it has priority %d", x.Priority)
		}
	case client.PolicyFair:
		text = "keys share the units by weight"
		if x != nil {
			its = fmt.Sprintf("its key %q has weight %d", x.Key, max(1, o.Weights[x.Key]))
		}
	default:
		text = "first come, first served"
		if len(o.Slots) > 0 {
			text += " on each slot"
		}
	}
	if its != "" {
		return text + ": " + its
	}
	return text
}
