package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
)

func serviceCmd(a *app) *cobra.Command {
	return group("service", "Service discovery: register, list, watch, drain", "",
		serviceRegister(a), serviceList(a), serviceWatch(a), serviceDrain(a), serviceUndrain(a))
}

func serviceList(a *app) *cobra.Command {
	c := command("ls NAME", "List the members of a service, in order of registration",
		`List the members of a service: address, zone, weight, state, and why. What callers leave out, as its
data is no address or a newer member has the address, has the state "left out", with the reason.

With --for ZONE, the list shows which members a caller in that zone uses, and why.`)
	zone := c.Flags().String("for", "", "Zone of a caller; empty: none.")
	require := c.Flags().Uint("require", 0, "Exit code 1 if fewer members are ready.")
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		n, err := inv.openNode()
		if err != nil {
			return err
		}
		members, err := n.Service(args[0]).List(inv.ctx, client.ReadConsistency(client.Strict))
		if err != nil {
			return err
		}
		v, err := discovery.ViewOf(members, discovery.InZone(*zone), discovery.Subset(0))
		if err != nil {
			return usagef("--for: %v", err)
		}
		var rows []row
		ready := uint(0)
		for i := range members {
			r, e := memberRow(&members[i], v)
			if e != nil && e.State == discovery.Ready {
				ready++
			}
			if cmd.Flag("for").Changed {
				used, why := false, "it is left out"
				if e != nil {
					used, why = v.Reason(e)
				}
				r = append(r, field{"used", "used", used}, field{"used_why", "because", why})
			}
			rows = append(rows, r)
		}
		if err := inv.printer().list(rows, "no members"); err != nil {
			return err
		}
		if ready < *require {
			return fmt.Errorf("%q has %s ready, and --require is %d", args[0], count(uint64(ready), "member"), *require)
		}
		return nil
	})
	return c
}

// leftOut is the state of members that callers do not see.
const leftOut = "left out"

// memberRow is a member, and its endpoint in a view, if it has one there.
func memberRow(m *client.Member, v *discovery.View) (row, *discovery.Endpoint) {
	e, why := v.Find(m)
	shown := &discovery.Endpoint{Addr: string(m.Data)}
	if e != nil {
		shown = e
	}
	if why != "" {
		shown, e = &discovery.Endpoint{Addr: shown.Addr, State: leftOut, Why: why}, nil
	}
	r := row{{"addr", "address", shown.Addr}, {"zone", "zone", shown.Zone}, {"weight", "weight", shown.Weight},
		{"state", "state", string(shown.State)}, {"why", "why", shown.Why}, {"data", "", m.Data}}
	return append(r, sessionFields(m)...), e
}

func sessionFields(m *client.Member) row {
	return row{{"session_id", "session", sessionID(m.Session)}, {"token", "token", m.Token},
		{"description", "description", m.Description}, {"since", "since", timestamp{m.Since}}}
}

func memberEventFields(m *client.Member) row {
	return append(row{{"data", "data", m.Data}}, sessionFields(m)...)
}

func serviceDrain(a *app) *cobra.Command {
	c := command("drain NAME SESSION", "Ask a member to drain",
		`Ask the member that a session registered to drain: it says so, callers look elsewhere, and it stays
registered. Its own end takes it out, and service undrain takes the request back. The request is the
configuration drain/NAME. Members that run with signalbox service register --addr, or with package
client/discovery, follow it; if one does not within 5s, the command says so, and the exit code is 1.
Needs the right use.`)
	c.Example = `  signalbox service ls api                       # shows the sessions
  signalbox service drain api 35184372088833`
	return serviceDrainVerb(a, c, true)
}

func serviceUndrain(a *app) *cobra.Command {
	return serviceDrainVerb(a, command("undrain NAME SESSION", "Take the request to drain back",
		`Take back that the member which a session registered is to drain. If it does not follow within 5s,
the command says so, and the exit code is 1. Needs the right use.`), false)
}

// serviceDrainVerb changes whether a member is asked to drain, and waits until it follows.
func serviceDrainVerb(a *app, c *cobra.Command, drain bool) *cobra.Command {
	c.Args = cobra.ExactArgs(2)
	c.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		id, err := strconv.ParseUint(args[1], 10, 64)
		if err != nil {
			return usagef("%q is no session; signalbox service ls %s shows the sessions", args[1], args[0])
		}
		return inv.withSession(func(s *client.Session) error {
			if !drain {
				err = discovery.CancelDrain(inv.ctx, s, args[0], id)
			} else if why, bad := drainReason(inv.ctx, s); bad != nil {
				err = bad
			} else {
				err = discovery.RequestDrain(inv.ctx, s, args[0], id, why)
			}
			if err != nil {
				return err
			}
			state, err := awaitDrain(inv.ctx, s, args[0], id, drain)
			return inv.report(err, row{{"name", "name", args[0]}, {"session_id", "session", sessionID(id)},
				{"state", "state", string(state)}},
				"the member of session %d is %s", id, state)
		})
	})
	return c
}

// drainReason says who asks: the identity that the server knows, or the user of this machine.
func drainReason(ctx context.Context, s *client.Session) (string, error) {
	info, err := s.Client().ServerInfo(ctx)
	if err != nil {
		return "", err
	}
	who := info.Identity
	if who == "anonymous" {
		who = cmp.Or(os.Getenv("USER"), "somebody")
		if host, err := os.Hostname(); err == nil {
			who += "@" + host
		}
	}
	return "drained by " + who, nil
}

// followPatience is how long a member may take to follow a request.
const followPatience = 5 * time.Second

// awaitDrain waits until the member of a session drains, or does not any more.
func awaitDrain(
	ctx context.Context, s *client.Session, service string, session uint64, draining bool,
) (state discovery.State, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, followPatience, fmt.Errorf(
		"the member has not followed within %s; it stays as it is unless it runs with client/discovery, by an address",
		followPatience))
	defer cancel()
	token := uint64(0)
	for ev, err := range s.Service(service).Watch(ctx) {
		if err != nil {
			return state, cmp.Or(context.Cause(ctx), err)
		}
		members := ev.Members
		if ev.Kind == client.MemberAdded || ev.Kind == client.MemberChanged {
			members = []client.Member{ev.Member}
		}
		for _, m := range members {
			if e, err := discovery.ParseEndpoint(m.Data); err == nil && m.Session == session {
				token, state = m.Token, e.State
			}
		}
		switch {
		case ev.Kind == client.MemberRemoved && ev.Member.Token == token:
			return "gone", nil
		case token != 0 && (state == discovery.Draining) == draining:
			return state, nil
		}
	}
	return state, ctx.Err()
}

// memberLine is a member without a heading.
func memberLine(m *client.Member) string {
	return strings.TrimRight(fmt.Sprintf("%s  session %d  %s", cell(m.Data), m.Session, cell(m.Description)), " ")
}

func memberEventRow(ev *client.MemberEvent) row {
	r := row{{"time", "time", clockTime{time.Now()}}}
	if ev.Kind == client.MemberSnapshot {
		r = append(r, field{"event", "event", "snapshot"}, field{"members", "", rowsOf(ev.Members, memberEventFields)},
			field{"", "members", labelled{"members", len(ev.Members)}})
		for i := range ev.Members {
			r = append(r, field{"", "member", subline(memberLine(&ev.Members[i]))})
		}
		return r
	}
	word := map[client.MemberEventKind]string{client.MemberAdded: "added", client.MemberChanged: "changed",
		client.MemberRemoved: "removed", client.MemberInterrupted: "interrupted", client.MemberSynced: "synced"}[ev.Kind]
	if ev.Kind == client.MemberInterrupted || ev.Kind == client.MemberSynced {
		return append(r, field{"event", "event", word})
	}
	r = append(r, field{"event", "event", word}, field{"", "data", ev.Member.Data},
		field{"", "session", labelled{"session", ev.Member.Session}}, field{"", "description", ev.Member.Description})
	for _, f := range memberEventFields(&ev.Member) {
		r = append(r, field{f.key, "", f.value})
	}
	return r
}

// maxCheckOutput is how much of a check's output is read, in bytes.
const maxCheckOutput = 1 << 10

// checkCommand succeeds if sh ends with 0 when it runs the text. The last line of the output is in
// the error. All of the command's process group is killed when the check's time ends.
func checkCommand(text string) discovery.Check {
	return func(ctx context.Context) error {
		cmd := shellCommand(ctx, text, syscall.SIGKILL)
		out := &head{most: maxCheckOutput}
		cmd.Stdout, cmd.Stderr = out, out
		err := cmd.Run()
		killGroup(cmd)
		lines := strings.Split(strings.TrimSpace(out.b.String()), "\n")
		if last := lines[len(lines)-1]; err != nil && last != "" {
			return fmt.Errorf("%w: %s", err, last)
		}
		return err
	}
}

// head keeps the beginning of the output.
type head struct {
	b    bytes.Buffer
	most int
}

var _ io.Writer = (*head)(nil)

func (h *head) Write(p []byte) (int, error) {
	h.b.Write(p[:min(len(p), h.most-h.b.Len())])
	return len(p), nil
}
