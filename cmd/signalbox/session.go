package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/spf13/cobra"
)

func parseSession(text string) (uint64, error) {
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil || id == 0 {
		return 0, usagef("%q is not a session id; `signalbox session ls` shows them", text)
	}
	return id, nil
}

func sessionRow(s *admin.SessionInfo) row {
	state, shown := "attached", "attached"
	if !s.Attached {
		state, shown = "detached", "detached, "+terminal.Age(s.Remaining)+" left"
	}
	return row{
		{"session_id", "session", sessionID(s.ID)}, {"state", "", state}, {"", "state", shown},
		{"description", "description", s.Description}, {"client", "client", s.Client},
		{"created_at", "created", timestamp{s.CreatedAt}}, {"timeout_ms", "timeout", ms(s.Timeout)},
		{"remaining_ms", "", ms(s.Remaining)}, {"epoch", "", s.Epoch},
	}
}

func sessionCmd(a *app) *cobra.Command {
	ls := command("ls", "List the sessions of the node", "")
	ls.RunE = a.nodeVerb(func(inv *invocation, n *client.Node, _ []string) error {
		return inv.list(each(admin.OfNode(n).Sessions(inv.ctx), sessionRow), "no sessions")
	})

	describe := command("describe SESSION", "Show a session, and what it holds, waits for and takes part in", "")
	describe.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		id, err := parseSession(args[0])
		if err != nil {
			return err
		}
		return showSession(inv, id)
	})

	kill := command("kill SESSION", "End a session and release what it holds",
		`End a session. What it holds is granted to the next waiters at once, and its memberships end. Its
client gets the reason as soon as the server reaches it. To release one lease and keep the
session, use "signalbox sem force-release".

`+forceWarning)
	kill.Example = `  signalbox session kill 35184372088833 --dry-run
  signalbox session kill 35184372088833 --reason 'host is broken'`
	g := addGuard(kill, "session kill")
	kill.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		id, err := parseSession(args[0])
		if err != nil {
			return err
		}
		if err := g.check(); err != nil {
			return err
		}
		if g.dryRun {
			return showSession(inv, id, field{"dry_run", "", true}, field{"", "killed", "no, this is a dry run"})
		}
		n, err := inv.openNode()
		if err != nil {
			return err
		}
		err = endedSessionError(inv.node, id, admin.OfNode(n).KillSession(inv.ctx, id, g.reason))
		return inv.report(err, row{{"session_id", "", sessionID(id)}, {"killed", "", true}}, "killed session %d", id)
	})
	return group("session", "Sessions: list them, and show what they hold", "", ls, describe, kill)
}

// showSession shows a session with what it holds, waits for and takes part in, and the extra
// fields.
func showSession(inv *invocation, id uint64, extra ...field) error {
	n, err := inv.openNode()
	if err != nil {
		return err
	}
	return describeSession(inv.ctx, n, id, inv.printer(), extra...)
}

func describeSession(ctx context.Context, n *client.Node, id uint64, out *printer, extra ...field) error {
	s, err := admin.OfNode(n).DescribeSession(ctx, id)
	if err != nil {
		return endedSessionError(n.Path(), id, err)
	}
	holds, waits := []row{}, []row{}
	for e, err := range n.List(ctx, "", client.OfSession(s.ID), client.ReadConsistency(client.Strict)) {
		if err != nil {
			return err
		}
		r := row{{"name", "name", e.Name}, {"token", "token", e.Token}, {"count", "count", amount(e.Count)},
			{"limit", "limit", amount(e.Limit)}}
		if e.Waiting {
			waits = append(waits, r)
		} else {
			holds = append(holds, r)
		}
	}
	processes, tracks, limits, children := []row{}, []row{}, []row{}, []row{}
	for o, err := range admin.OfNode(n).SessionObjects(ctx, s.ID) {
		switch {
		case err != nil:
			return err
		case o.Kind == admin.ObjectProcess:
			processes = append(processes, row{{"name", "name", o.Name}, {"key", "key", o.Label}})
		case o.Kind == admin.ObjectLimit:
			limits = append(limits, row{{"name", "name", o.Name}})
		case o.Kind == admin.ObjectSession:
			children = append(children, row{{"session_id", "session", sessionID(o.Session)},
				{"description", "description", o.Label}})
		case o.Kind == admin.ObjectTrack:
			tracks = append(tracks,
				row{{"name", "name", o.Name}, {"instance", "instance", o.Label}, {"instances", "instances", o.Instances}})
		}
	}
	r := append(sessionRow(s), field{"holds", "holds", holds}, field{"waits", "waits for", waits},
		field{"processes", "member of", processes}, field{"tracks", "instances in", tracks},
		field{"limits", "rate limits", limits},
		field{"children", "started by its command", children})
	if s.Parent != 0 {
		r = append(r, field{"parent_id", "parent", sessionID(s.Parent)})
	}
	return out.item(append(r, extra...))
}

// nodeFlag returns the flag that a command needs for a node other than the default, with a space
// before it.
func nodeFlag(node string) string {
	if node == client.DefaultNode {
		return ""
	}
	return " --node " + node
}

// endedSessionError replaces the SDK's sentence, which is for the session's own client.
func endedSessionError(node string, id uint64, err error) error {
	if errors.Is(err, client.ErrSessionExpired) {
		return fmt.Errorf("session %d has ended or never existed in node %s; `signalbox session ls%s` lists its live sessions, "+
			"--node names another node", id, node, nodeFlag(node))
	}
	return err
}
