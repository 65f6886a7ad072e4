// Package explain has the sentences that say why a session waits for a semaphore. Names and
// descriptions in them are not escaped.
package explain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
)

// Lines are the sentences about a wait. at is the flag that names the node in a command; empty: none
// does.
func Lines(at, sem string, session uint64, w *client.QueueStatus) []string {
	lines := []string{whySentence(sem, session, w)}
	for _, text := range []string{orderSentence(w), ownSentence(w), keptSentence(w), FirstEnd(Blocking(w)),
		Never(sem, w)} {
		if text != "" {
			lines = append(lines, text)
		}
	}
	lines = append(lines, Preempted(at, sem, w)...)
	if d := w.Deadlock; d != nil {
		lines = append(lines, Deadlock(d, session)...)
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

// maxPreemptedLines is how many owners have a sentence; the table has all.
const maxPreemptedLines = 5

// Preempted names the owners that are preempted for a waiter, and those of them that do not
// yield; or says why no owner is preempted.
func Preempted(at, sem string, w *client.QueueStatus) (lines []string) {
	asked := 0
	for _, o := range Blocking(w) {
		if !o.Preempted {
			continue
		}
		what := List(o.Slots)
		if what == "" {
			what = "what it holds"
		}
		text, holdsOn := Session(o.Session, o.Description)+" is asked to give back "+what, ""
		switch {
		case o.Silent:
			text += ", and does not answer"
			holdsOn = fmt.Sprintf("it holds on until its session ends, or until `signalbox sem force-release %s%s --token %d --reason WHY`",
				sem, at, o.Token)
		case o.Left > 0:
			text += ", within " + terminal.Short(o.Left)
		default:
			text += ", and may take its time: there is no --grace"
		}
		if lines = append(lines, text); holdsOn != "" {
			lines = append(lines, holdsOn)
		}
		if asked++; asked == maxPreemptedLines {
			break
		}
	}
	anyPreempted := slices.ContainsFunc(w.Holders, func(o client.Owner) bool { return o.Preempted })
	if _, never := w.NeverGranted(); anyPreempted || never || !w.Waiting || w.Position != 1 || w.Config == nil {
		return lines
	}
	switch w.Config.Preempt {
	case client.PreemptLower:
		lines = append(lines, fmt.Sprintf("nobody is preempted: owners with a priority below %d do not hold enough for it",
			w.Own.Priority))
	case client.PreemptAny:
		lines = append(lines, "nobody is preempted: what owners hold would not be enough for it")
	}
	return lines
}

// Blocking are the owners whose units a waiter could use, all for one that takes any.
func Blocking(w *client.QueueStatus) []client.Owner {
	if !w.Waiting || w.Config == nil || len(w.Config.Slots) == 0 {
		return w.Holders
	}
	takes := w.Config.Takes(&w.Own)
	return slices.DeleteFunc(slices.Clone(w.Holders), func(o client.Owner) bool {
		return !slices.ContainsFunc(takes, func(x client.Slot) bool { return x.Session == o.Session })
	})
}

// FirstEnd says which of some holds ends by itself first, and when; empty: none does. Those of
// preempted owners are said elsewhere.
func FirstEnd(owners []client.Owner) string {
	var first *client.Owner
	for i := range owners {
		if o := &owners[i]; o.Left > 0 && !o.Preempted && (first == nil || o.Left < first.Left) {
			first = o
		}
	}
	if first == nil {
		return ""
	}
	who, left := Session(first.Session, first.Description), terminal.Short(first.Left)
	if len(owners) == 1 {
		return fmt.Sprintf("the hold of %s ends by itself in %s", who, left)
	}
	return fmt.Sprintf("the first hold that ends by itself is that of %s, in %s", who, left)
}

// Session names a session, with its description if there is one.
func Session(id uint64, description string) string {
	text := fmt.Sprintf("session %d", id)
	if description != "" {
		text += " (" + description + ")"
	}
	return text
}

// List is words with commas, and with "and" before the last.
func List(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
	return strings.Join(words, "")
}

// Deadlock names the sessions of a deadlock, and what ends it. session asks; 0: none of them.
func Deadlock(d *client.Deadlock, session uint64) []string {
	text := fmt.Sprintf("deadlock: %d sessions wait for each other, and none of them can go on", len(d.Sessions))
	if !d.Confirmed {
		text = fmt.Sprintf("it looks like a deadlock of %d sessions, which a second read did not confirm; ask again",
			len(d.Sessions))
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

// Never names the waiter that can never be granted, and the consequence; empty if there is
// none.
func Never(name string, w *client.QueueStatus) string {
	x, ok := w.NeverGranted()
	if !ok {
		return ""
	}
	own := w.Waiting && x.Place == w.Own.Place
	if x.Count <= w.Limit {
		return slotSentence(name, w, &x, own)
	}
	who := Session(x.Session, x.Description)
	if own {
		who = "it"
	}
	text := fmt.Sprintf("%s wants %s of limit %s and can never be granted", who, units(x.Count),
		units(w.Limit))
	if !own {
		text += ", and nobody behind it"
	}
	return text + ", unless the limit is raised or it leaves the queue"
}

// slotSentence is about a waiter that wants more slots than are granted any more.
func slotSentence(name string, w *client.QueueStatus, x *client.Waiter, own bool) string {
	var drained []string
	for _, slot := range w.Config.Takes(x) {
		if slot.State == client.SlotDrained || slot.State == client.SlotDraining {
			drained = append(drained, slot.Name)
		}
	}
	text := fmt.Sprintf("%s wants %s and cannot be granted", Session(x.Session, x.Description), wanted(x, w.Config))
	if own {
		text = "it cannot be granted"
	}
	if len(drained) > 0 {
		text += fmt.Sprintf(" before `signalbox sem undrain %s %s`", name, strings.Join(drained, " "))
	} else {
		text += ": slots that it takes are not in the list any more"
	}
	if !own {
		text += "; those behind it that take the same slots wait for it"
	}
	return text
}

// wanted describes a waiter's request.
func wanted(x *client.Waiter, o *client.SemaphoreConfig) string {
	switch {
	case len(x.Slots) == 1:
		return "slot " + x.Slots[0]
	case len(x.Slots) > 1:
		return "slots " + List(x.Slots)
	case x.Count == client.Max:
		return "all of it"
	case o == nil || len(o.Slots) == 0:
		return units(x.Count)
	}
	text := "1 slot"
	if x.Count != 1 {
		text = units(x.Count) + " slots"
	}
	if len(x.Labels) > 0 {
		text += " with " + List(x.Labels)
	}
	return text
}

// whySentence describes a session's place in the queue, its request, and the free units.
func whySentence(name string, session uint64, w *client.QueueStatus) string {
	free := freeText(w)
	policy := w.Config != nil && w.Config.Policy != client.PolicyFIFO
	laned := policy || w.Config != nil && len(w.Config.Slots) > 0
	own := Session(session, w.Own.Description)
	switch {
	case w.Holding:
		return fmt.Sprintf("session %d holds %s", session, name)
	case w.Waiting && w.Position == 0:
		return fmt.Sprintf("%s is not among the 16 that are next in the queue of %s, and wants %s; %s",
			own, name, wanted(&w.Own, w.Config), free)
	case w.Waiting && w.Position == 1:
		return fmt.Sprintf("%s is first in the queue of %s and wants %s; %s", own, name, wanted(&w.Own, w.Config), free)
	case w.Waiting:
		return fmt.Sprintf("%s is number %d in the queue of %s and wants %s; %s",
			own, w.Position, name, wanted(&w.Own, w.Config), free)
	case session != 0:
		return fmt.Sprintf("session %d neither holds %s nor waits for it; %s", session, name, free)
	case len(w.Ahead) > 0 && laned:
		return fmt.Sprintf("%d wait for %s; %s", len(w.Ahead), name, free)
	case len(w.Ahead) > 0:
		return fmt.Sprintf("a new waiter for %s would be number %d in the queue; %s", name, len(w.Ahead)+1, free)
	default:
		return fmt.Sprintf("nobody waits for %s; %s", name, free)
	}
}

// freeText counts the free units; where units are slots, only those that the waiter takes.
func freeText(w *client.QueueStatus) string {
	used := uint64(0)
	for _, o := range w.Holders {
		used += min(o.Count, client.Max-used)
	}
	switch {
	case w.Config != nil && len(w.Config.Slots) > 0:
		return freeSlotsText(w)
	case used > w.Limit:
		return fmt.Sprintf("%d are held, more than the limit of %d: it was lowered", used, w.Limit)
	case w.Limit == client.Max && used == client.Max:
		return "it is held whole"
	case w.Limit == client.Max:
		return fmt.Sprintf("%d of its units are held", used)
	}
	return fmt.Sprintf("%d of %d free", w.Free, w.Limit)
}

func freeSlotsText(w *client.QueueStatus) string {
	slots := w.Config.Slots
	if w.Waiting {
		slots = w.Config.Takes(&w.Own)
	}
	n := make(map[client.SlotState]int)
	for _, x := range slots {
		n[x.State]++
	}
	var words []string
	for _, state := range []client.SlotState{client.SlotFree, client.SlotHeld, client.SlotDraining, client.SlotDrained,
		client.SlotLeaving} {
		if n[state] > 0 {
			words = append(words, fmt.Sprintf("%d %s", n[state], state))
		}
	}
	states := strings.Join(words, ", ")
	switch {
	case w.Waiting && len(w.Own.Slots) > 0 && len(slots) == 0:
		return "it is not in the list any more"
	case w.Waiting && len(w.Own.Slots) > 0 && len(slots) == 1:
		return "it is " + slots[0].State.String()
	case w.Waiting && len(w.Own.Slots) > 0:
		return "of these " + states
	case w.Waiting && len(w.Own.Labels) > 0 && len(slots) == 0:
		return "no slot has that any more"
	case w.Waiting && len(w.Own.Labels) > 0 && len(slots) == 1:
		return "1 slot has that, and it is " + slots[0].State.String()
	case w.Waiting && len(w.Own.Labels) > 0:
		return fmt.Sprintf("%d slots have that: %s", len(slots), states)
	}
	if len(slots) == 1 {
		return "1 slot: " + states
	}
	return fmt.Sprintf("%d slots: %s", len(slots), states)
}

// orderSentence says in which order a semaphore with a policy serves, and what that means for a
// waiter; else, for one that is not first, that the order is strict.
func orderSentence(w *client.QueueStatus) string {
	o := w.Config
	if !w.Waiting && len(w.Ahead) == 0 {
		return ""
	}
	switch {
	case o != nil && o.Policy == client.PolicyPriority:
		text := "the highest priority is served first"
		if o.Aging > 0 {
			text += fmt.Sprintf(", and each %s of waiting counts as one level", terminal.Short(o.Aging))
		}
		if w.Waiting {
			text += fmt.Sprintf("; it has priority %d", w.Own.Priority)
		}
		return text
	case o != nil && o.Policy == client.PolicyFair:
		text := "keys share the units by weight"
		switch {
		case w.Waiting && w.Own.Key == "":
			text += fmt.Sprintf("; it has no key, and weight %d", max(1, o.Weights[""]))
		case w.Waiting:
			text += fmt.Sprintf("; its key %q has weight %d", w.Own.Key, max(1, o.Weights[w.Own.Key]))
		}
		return text
	case o != nil && len(o.Slots) > 0:
		return "first come, first served on each slot"
	case len(w.Ahead) > 0:
		return "the queue is strict: first come, first served"
	}
	return ""
}

// ownSentence is since when a waiter waits, and when it gives up.
func ownSentence(w *client.QueueStatus) string {
	if !w.Waiting {
		return ""
	}
	waited := time.Since(w.Own.Since)
	text := "it came " + terminal.Age(waited) + " ago"
	if w.Own.Timeout != client.Forever {
		text += " and gives up in " + terminal.Age(w.Own.Timeout-waited)
	}
	return text
}

// keptSentence says that free units are kept for a waiter ahead of this one.
func keptSentence(w *client.QueueStatus) string {
	switch {
	case len(w.Ahead) == 0:
		return ""
	case w.Config == nil || len(w.Config.Slots) == 0:
		if first := &w.Ahead[0]; w.Free > 0 && first.Count > w.Free && first.Count <= w.Limit {
			return fmt.Sprintf("what is free is kept for the first in the queue, which wants %s", wanted(first, w.Config))
		}
		return ""
	case !w.Waiting:
		return ""
	}
	var free []string
	for _, slot := range w.Config.Takes(&w.Own) {
		if slot.State == client.SlotFree {
			free = append(free, slot.Name)
		}
	}
	if uint64(len(free)) < w.Own.Count {
		return ""
	}
	return List(free) + " is kept for those ahead in the queue that take it too"
}

// units is a count, "max" for the largest.
func units(n uint64) string {
	if n == client.Max {
		return "max"
	}
	return strconv.FormatUint(n, 10)
}
