package main

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	coord "github.com/signalbox-dev/signalbox/client/process"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/spf13/cobra"
)

var elections = choicesOf(coord.Oldest, coord.LowestID, coord.Preferred)

func processCmd(a *app) *cobra.Command {
	ls := command("ls [PREFIX]", "List the processes of the node", "")
	ls.RunE = a.nodeVerb(func(inv *invocation, n *client.Node, args []string) error {
		return inv.list(each(coord.List(inv.ctx, n, strings.Join(args, "")), func(p *coord.Info) row {
			return row{
				{"name", "name", p.Name}, {"phase", "phase", p.Phase.String()}, {"members", "members", p.Members},
				{"epoch", "epoch", p.Epoch},
				{"topology", "", p.Topology}, {"coordinator", "coordinator", coordinator(p.Phase, p.Coordinator)},
			}
		}), "no processes")
	})

	describe := command("describe NAME",
		"Show a process: members, coordinator, the members its round waits for, and the last rounds", "")
	describe.RunE = a.nodeVerb(func(inv *invocation, n *client.Node, args []string) error {
		s, err := coord.NewOperator(n, args[0]).Describe(inv.ctx)
		if err != nil {
			return err
		}
		return inv.printer().item(processRow(s, inv.node))
	})

	watch := command("watch NAME", "Print the state of a process and each change, until Ctrl-C", "")
	a.streamVerb(watch, func(ctx context.Context, n *client.Node, name string) iter.Seq2[row, error] {
		return each(coord.NewOperator(n, name).Watch(ctx), processEventRow)
	})

	force := command("force NAME", "Start a new round without a change of members",
		`Start a new round without a change of members. It follows the current round if that is decided,
and replaces it otherwise. Members whose session has ended and whose key reserves their place
leave.`)
	force.Example = "  signalbox process force mail --reason 'new partitions'"
	forced := force.Flags().String("reason", "", "Reason, for the records; at most 256 bytes.")
	force.RunE = a.nodeVerb(func(inv *invocation, n *client.Node, args []string) error {
		err := coord.NewOperator(n, args[0]).Force(inv.ctx, *forced)
		return inv.report(err, row{{"name", "", args[0]}, {"forced", "", true}},
			"a new round of %s starts", args[0])
	})

	evict := command("evict NAME SESSION", "End a membership and start a new round of the others",
		`End the membership of a session, and give up the place that its key reserves. The member is
notified and does not join again by itself; its session stays. The others may take over its work
before it is notified. To end the whole session use "signalbox session kill".`)
	evict.Example = "  signalbox process evict mail 35184372088833 --reason 'host is broken'"
	evicted := evict.Flags().String("reason", "", "Reason, for the member and the records; at most 256 bytes.")
	evict.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		id, err := parseSession(args[1])
		if err != nil {
			return err
		}
		n, err := inv.openNode()
		if err != nil {
			return err
		}
		err = coord.NewOperator(n, args[0]).Evict(inv.ctx, id, *evicted)
		return inv.report(err, row{{"name", "", args[0]}, {"session_id", "", sessionID(id)}, {"evicted", "", true}},
			"evicted session %d from %s", id, args[0])
	})

	return group("process", "Coordination processes: members and rounds",
		`Programs join a process by name (package client/process of the SDK). Each change of members runs
one round: all members prepare, agree with the coordinator, and complete.`, ls, describe, watch, force, evict, processAlter(a))
}

func processAlter(a *app) *cobra.Command {
	c := command("alter NAME", "Change the options of a process; omitted ones stay",
		`Change the options of a process, which its first member set. Omitted options stay, and so do
running timers. The options are forgotten ten minutes after the last member left.`)
	c.Example = "  signalbox process alter mail --debounce 500ms --round-timeout 1m"
	var given coord.Options
	election := parsedVar(c.Flags(), "election", "", elections.parse,
		"How the coordinator is chosen: oldest, lowest-id or preferred (highest weight).")
	times := []struct {
		flag string
		of   func(o *coord.Options) *time.Duration
		help string
	}{
		{"debounce", func(o *coord.Options) *time.Duration { return &o.Debounce },
			"Time from a change of members to the next round; 0: at once."},
		{"round-timeout", func(o *coord.Options) *time.Duration { return &o.RoundTimeout },
			"Time after which an undecided round fails; 0: never."},
		{"backoff-min", func(o *coord.Options) *time.Duration { return &o.BackoffMin },
			"Wait before a failed round is retried; it doubles each time."},
		{"backoff-max", func(o *coord.Options) *time.Duration { return &o.BackoffMax }, "Longest wait before a retry."},
		{"return", func(o *coord.Options) *time.Duration { return &o.Return },
			"How long the place of a member with a key is reserved without a session; 0: not at all."},
	}
	options := []string{"election"}
	for _, t := range times {
		durationVar(c.Flags(), t.of(&given), t.flag, 0, t.help)
		optional(c.Flags(), t.flag)
		options = append(options, t.flag)
	}
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		if !slices.ContainsFunc(options, cmd.Flags().Changed) {
			return usagef("no option is given; give one of --%s", strings.Join(options, ", --"))
		}
		n, err := inv.openNode()
		if err != nil {
			return err
		}
		p := coord.NewOperator(n, args[0])
		s, err := p.Describe(inv.ctx)
		if err != nil {
			return err
		}
		o := s.Options
		if cmd.Flags().Changed("election") {
			o.Election = *election
		}
		for _, t := range times {
			if cmd.Flags().Changed(t.flag) {
				*t.of(&o) = *t.of(&given)
			}
		}
		err = p.Alter(inv.ctx, o)
		return inv.report(err, row{{"name", "", args[0]}, {"options", "", optionsRow(&o)}},
			"%s has %s", args[0], optionsText(&o))
	})
	return c
}

// coordinator is the coordinator of the present or last round; none for a process without members.
func coordinator(phase coord.Phase, session uint64) any {
	if session == 0 || phase == coord.Idle {
		return none{}
	}
	return session
}

// none is the absence of a value: null in JSON.
type none struct{}

func (none) String() string               { return "-" }
func (none) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

func processRow(s *coord.Status, node string) row {
	behind := s.Lagging()
	waits := make([]uint64, len(behind))
	names := make([]string, len(behind))
	for i, m := range behind {
		waits[i], names[i] = m.Session, memberName(&m.Member)
	}
	waitsFor := uncut(strings.Join(names, ", "))
	switch {
	case len(behind) > 0:
	case s.Phase == coord.Waiting:
		waitsFor = uncut("the next round, in " + s.StartsIn.String())
	case s.Phase == coord.Coordinating:
		waitsFor = "the coordinator"
	default:
		waitsFor = "nobody"
	}
	r := row{
		{"name", "name", s.Name}, {"node", "node", node}, {"phase", "phase", s.Phase.String()},
		{"waits_for", "", waits}, {"", "waits for", waitsFor},
		{"epoch", "epoch", s.Epoch}, {"topology", "topology", s.Topology},
		{"coordinator", "coordinator", coordinator(s.Phase, s.Coordinator)},
		{"started_at", "started", timestamp{s.Started}},
	}
	if s.Attempt > 0 || s.Phase == coord.Waiting {
		r = append(r, field{"attempt", "failed before", s.Attempt}, field{"starts_in_ms", "", ms(s.StartsIn)})
	}
	t := &s.Tally
	r = append(r,
		field{"", "rounds", uncut(fmt.Sprintf("%d completed, %d cancelled, %d failed, for %s of members",
			t.Completed, t.Cancelled, t.Failed, count(t.Changes, "change")))},
		field{"rounds", "", row{{"started", "", t.Started}, {"completed", "", t.Completed},
			{"cancelled", "", t.Cancelled}, {"failed", "", t.Failed}}},
		field{"changes", "", t.Changes}, field{"returned", "", t.Returned}, field{"late_calls", "", t.Stale},
		field{"", "options", uncut(optionsText(&s.Options))}, field{"options", "", optionsRow(&s.Options)},
	)
	members := make([]row, len(s.Members))
	for i := range s.Members {
		m := &s.Members[i]
		role := "member"
		if m.Session == s.Coordinator && s.Phase != coord.Waiting {
			role = "coordinator"
		}
		state := m.State.String()
		shown := state
		if m.State == coord.MemberAbsent {
			shown += ", leaves in " + terminal.Age(m.LeavesIn)
		}
		members[i] = row{
			{"session_id", "session", sessionID(m.Session)}, {"role", "role", role}, {"state", "", state},
			{"", "state", shown}, {"key", "key", m.Key}, {"data", "data", m.Data},
			{"identity", "", m.Identity}, {"weight", "", m.Weight}, {"order", "", m.Order},
			{"token", "token", m.Token}, {"joined_at", "joined", timestamp{m.Joined}},
		}
		if m.State == coord.MemberAbsent {
			members[i] = append(members[i], field{"leaves_in_ms", "", ms(m.LeavesIn)})
		}
	}
	return append(r, field{"members", "members", members},
		field{"last_rounds", "last rounds", roundRows(s.History)})
}

// memberName is a member for people: its key or data, and its session.
func memberName(m *coord.Member) string {
	name := cmp.Or(m.Key, string(m.Data))
	if name = cell(name); name == "" {
		return fmt.Sprintf("session %d", m.Session)
	}
	return fmt.Sprintf("%s (session %d)", name, m.Session)
}

func optionsRow(o *coord.Options) row {
	return row{
		{"election", "", o.Election.String()}, {"debounce_ms", "", ms(o.Debounce)},
		{"round_timeout_ms", "", ms(o.RoundTimeout)},
		{"backoff_min_ms", "", ms(o.BackoffMin)}, {"backoff_max_ms", "", ms(o.BackoffMax)},
		{"return_ms", "", ms(o.Return)},
	}
}

func optionsText(o *coord.Options) string {
	text := fmt.Sprintf("election %s, back-off %s to %s", o.Election.String(), o.BackoffMin, o.BackoffMax)
	for _, x := range []struct {
		name string
		d    time.Duration
	}{{"debounce", o.Debounce}, {"round timeout", o.RoundTimeout}, {"return", o.Return}} {
		if x.d > 0 {
			text += fmt.Sprintf(", %s %s", x.name, x.d)
		}
	}
	return text
}

// roundRows are the last rounds, the newest first.
func roundRows(history []coord.PastRound) []row {
	rows := []row{}
	for _, h := range slices.Backward(history) {
		rows = append(rows, row{
			{"epoch", "epoch", h.Epoch}, {"outcome", "outcome", h.Outcome.String()}, {"lasted_ms", "lasted", ms(h.Lasted)},
			{"prepared_ms", "prepared", after(h.Prepared, h.Outcome)},
			{"decided_ms", "decided", after(h.Decided, h.Outcome)}, {"members", "members", h.Size},
			{"topology", "", h.Topology}, {"attempt", "attempt", h.Attempt + 1},
			{"coordinator", "coordinator", h.Coordinator}, {"started_at", "started", timestamp{h.Started}},
			{"text", "why", h.Text},
		})
	}
	return rows
}

// after is the time from the start of a round to one of its steps; none if the round did not get
// there. In a complete round 0 is a time.
func after(d time.Duration, outcome coord.Outcome) any {
	if d == 0 && outcome != coord.OutcomeCompleted {
		return none{}
	}
	return ms(d)
}

var processChanges = choices[coord.ChangeKind]{
	{"joined", coord.ChangeJoined}, {"left", coord.ChangeLeft}, {"absent", coord.ChangeAbsent},
	{"returned", coord.ChangeReturned}, {"started", coord.ChangeStarted},
	{"phase", coord.ChangePhase}, {"ended", coord.ChangeEnded}, {"altered", coord.ChangeAltered},
	{"gone", coord.ChangeGone},
}

func processEventRow(n *coord.WatchEvent) row {
	r := row{{"time", "time", clockTime{time.Now()}}}
	switch {
	case n.Absent:
		return append(r, field{"event", "event", "absent"}, field{"", "text", "there is no such process yet"})
	case n.Status != nil:
		s := n.Status
		r = append(r, field{"event", "event", "status"}, field{"phase", "phase", s.Phase.String()},
			field{"epoch", "epoch", labelled{"epoch", s.Epoch}},
			field{"topology", "", s.Topology}, field{"coordinator", "", coordinator(s.Phase, s.Coordinator)},
			field{"members", "members", labelled{"members", len(s.Members)}})
		for _, m := range s.Members {
			r = append(r, field{"", "member", subline(memberName(&m.Member) + "  " + m.State.String())})
		}
		return r
	}
	c := n.Change
	r = append(r, field{"event", "event", processChanges.word(c.Kind)})
	switch c.Kind {
	case coord.ChangePhase:
		r = append(r, field{"phase", "phase", c.Phase.String()})
	case coord.ChangeEnded:
		r = append(r, field{"outcome", "outcome", c.Outcome.String()})
	}
	if c.Epoch > 0 {
		r = append(r, field{"epoch", "epoch", labelled{"epoch", c.Epoch}})
	}
	switch {
	case c.Session == 0:
	case c.Kind == coord.ChangeStarted:
		r = append(r, field{"coordinator", "coordinator", labelled{"coordinator", c.Session}})
	default:
		r = append(r, field{"session_id", "session", labelled{"session", sessionID(c.Session)}})
	}
	r = append(r, field{"topology", "", c.Topology})
	if c.Text != "" {
		key := "text"
		if c.Kind == coord.ChangeJoined {
			key = "key"
		}
		r = append(r, field{key, "text", c.Text})
	}
	return r
}
