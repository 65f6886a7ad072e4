package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/explain"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
)

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
	say("back", "its holder came back as %s, and has had it since %s, with token %d", k >= 0 && h.Description != "", k)
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
