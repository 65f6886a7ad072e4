package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	coord "github.com/signalbox-dev/signalbox/client/process"
	"github.com/spf13/cobra"
)

var (
	phaseWords = map[coord.Phase]string{
		coord.Idle: "idle", coord.Waiting: "waiting", coord.Preparing: "preparing", coord.Coordinating: "coordinating", coord.Completing: "completing",
		coord.Completed: "completed",
	}
	memberStates = map[coord.MemberState]string{
		coord.MemberOutside: "outside", coord.MemberPreparing: "preparing", coord.MemberPrepared: "prepared", coord.MemberCompleting: "completing", coord.MemberCompleted: "completed",
		coord.MemberResuming: "resuming", coord.MemberAbsent: "absent",
	}
	outcomeWords  = map[coord.Outcome]string{coord.OutcomeCompleted: "completed", coord.OutcomeCancelled: "cancelled", coord.OutcomeFailed: "failed"}
	electionWords = map[coord.Election]string{coord.Oldest: "oldest", coord.LowestID: "lowest-id", coord.Preferred: "preferred"}
)

// word is a value's name; one that a newer server has is shown as a number.
func word[K ~uint8](words map[K]string, k K) string {
	if w, ok := words[k]; ok {
		return w
	}
	return fmt.Sprint(uint8(k))
}

func (a *app) processCmd() *cobra.Command {
	ls := &cobra.Command{Use: "ls [PREFIX]", Short: "List the processes of the node", Args: cobra.MaximumNArgs(1)}
	ls.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		n, err := inv.openNode()
		if err != nil {
			return err
		}
		var rows []row
		for p, err := range coord.List(inv.ctx, n, strings.Join(args, "")) {
			if err != nil {
				return err
			}
			rows = append(rows, row{
				{"name", "name", p.Name}, {"phase", "phase", word(phaseWords, p.Phase)}, {"members", "members", p.Members}, {"epoch", "epoch", p.Epoch},
				{"topology", "", p.Topology}, {"coordinator", "coordinator", coordinator(p.Phase, p.Coordinator)},
			})
		}
		return inv.printer().list(rows, "no processes")
	})

	describe := &cobra.Command{
		Use: "describe NAME", Short: "Show a process: members, coordinator, the members its round waits for, and the last rounds", Args: cobra.ExactArgs(1),
	}
	describe.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		s, err := inv.process(args[0])
		if err != nil {
			return err
		}
		return inv.printer().item(processRow(s, inv.node))
	})

	history := &cobra.Command{
		Use: "history NAME", Short: "Show the last rounds with their duration and outcome, newest first", Args: cobra.ExactArgs(1),
	}
	history.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		s, err := inv.process(args[0])
		if err != nil {
			return err
		}
		return inv.printer().list(roundRows(s.History, len(s.History)), "no round is over yet")
	})

	watch := &cobra.Command{Use: "watch NAME", Short: "Print the state of a process and each change, until Ctrl-C", Args: cobra.ExactArgs(1)}
	count := watch.Flags().Uint("count", 0, "Stop after this many lines; 0: never.")
	watch.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		out, err := inv.stream()
		if err != nil {
			return err
		}
		o, err := inv.processOperator(args[0])
		if err != nil {
			return err
		}
		return printEach(inv.longCtx, *count, o.Watch(inv.longCtx), func(n coord.WatchEvent) error { return out.event(processEventRow(&n)) })
	})

	force := &cobra.Command{
		Use: "force NAME", Short: "Start a new round without a change of members", Args: cobra.ExactArgs(1),
		Long: `Start a new round without a change of members. It follows the current round if that is decided,
and replaces it otherwise. Members whose session has ended and whose key reserves their place
leave.`,
		Example: "  signalbox process force mail --reason 'new partitions'",
	}
	forced := force.Flags().String("reason", "", "Reason, for the records; at most 256 bytes.")
	force.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		o, err := inv.processOperator(args[0])
		if err == nil {
			err = o.Force(inv.ctx, *forced)
		}
		if err != nil {
			return processHint(args[0], err)
		}
		return inv.printer().message(row{{"name", "", args[0]}, {"forced", "", true}}, "a new round of %s starts", sanitize(args[0]))
	})

	evict := &cobra.Command{
		Use: "evict NAME SESSION", Short: "End a membership and start a new round of the others", Args: cobra.ExactArgs(2),
		Long: `End the membership of a session, and give up the place that its key reserves. The member is
notified and does not join again by itself; its session stays. The others may take over its work
before it is notified. To end the whole session use "signalbox session kill".`,
		Example: "  signalbox process evict mail 35184372088833 --reason 'host is broken'",
	}
	evicted := evict.Flags().String("reason", "", "Reason, for the member and the records; at most 256 bytes.")
	evict.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		id, err := parseSession(args[1])
		if err != nil {
			return err
		}
		o, err := inv.processOperator(args[0])
		if err == nil {
			err = o.Evict(inv.ctx, id, *evicted)
		}
		if err != nil {
			return processHint(args[0], err)
		}
		return inv.printer().message(row{{"name", "", args[0]}, {"session_id", "", id}, {"evicted", "", true}}, "evicted session %d from %s", id, sanitize(args[0]))
	})

	alter := &cobra.Command{
		Use: "alter NAME", Short: "Change the options of a process; omitted ones stay", Args: cobra.ExactArgs(1),
		Long: `Change the options of a process, which its first member set. Omitted options stay, and so do
running timers. The options are forgotten ten minutes after the last member left.`,
		Example: "  signalbox process alter mail --debounce 500ms --round-timeout 1m",
	}
	election := alter.Flags().String("election", "", "How the coordinator is chosen: oldest, lowest-id or preferred (highest weight).")
	times := map[string]*time.Duration{}
	for flag, about := range map[string]string{
		"debounce":      "Time from a change of members to the next round; 0: at once.",
		"round-timeout": "Time after which an undecided round fails; 0: never.",
		"backoff-min":   "Wait before a failed round is retried; it doubles each time.",
		"backoff-max":   "Longest wait before a retry.",
		"return":        "How long the place of a member with a key is reserved without a session; 0: not at all.",
	} {
		times[flag] = new(time.Duration)
		durationVar(alter.Flags(), times[flag], flag, 0, about)
	}
	alter.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		var e coord.Election
		known := *election == ""
		for x, w := range electionWords {
			if w == *election {
				e, known = x, true
			}
		}
		if !known {
			return usagef("--election %q is unknown; choose oldest, lowest-id or preferred", *election)
		}
		changed := *election != ""
		for flag := range times {
			changed = changed || cmd.Flag(flag).Changed
		}
		if !changed {
			return usagef("no option is given; give one of --election, --debounce, --round-timeout, --backoff-min, --backoff-max, --return")
		}
		s, err := inv.process(args[0])
		if err != nil {
			return err
		}
		o := s.Options
		if *election != "" {
			o.Election = e
		}
		for flag, to := range map[string]*time.Duration{
			"debounce": &o.Debounce, "round-timeout": &o.RoundTimeout, "backoff-min": &o.BackoffMin, "backoff-max": &o.BackoffMax, "return": &o.Return,
		} {
			if cmd.Flag(flag).Changed {
				*to = *times[flag]
			}
		}
		p, err := inv.processOperator(args[0])
		if err == nil {
			err = p.Alter(inv.ctx, o)
		}
		if err != nil {
			return processHint(args[0], err)
		}
		return inv.printer().message(row{{"name", "", args[0]}, {"options", "", optionsRow(&o)}}, "%s has %s", sanitize(args[0]), optionsText(&o))
	})

	c := group("process", "Coordination processes: members and rounds", `Programs join a process by name (package client/process of the SDK). Each change of members runs
one round: all members prepare, agree with the coordinator, and complete.`, ls, describe, history, watch, force, evict, alter)
	for _, s := range c.Commands() {
		addFlags(s.Flags(), scopeClient)
	}
	return c
}

func (inv *invocation) processOperator(name string) (*coord.Operator, error) {
	n, err := inv.openNode()
	if err != nil {
		return nil, err
	}
	return coord.Operate(n, name), nil
}

func (inv *invocation) process(name string) (*coord.Status, error) {
	o, err := inv.processOperator(name)
	if err != nil {
		return nil, err
	}
	s, err := o.Describe(inv.ctx)
	if err != nil {
		return nil, processHint(name, err)
	}
	return s, nil
}

// processHint says what an operator does next when there is no such process or member.
func processHint(name string, err error) error {
	switch {
	case !errors.Is(err, client.NotFound):
		return err
	case strings.Contains(err.Error(), "member"):
		return fmt.Errorf("%w; `signalbox process describe %s` shows the members", err, sanitize(name))
	default:
		return fmt.Errorf("%w; `signalbox process ls` shows those that are there", err)
	}
}

// coordinator is the one of the present or last round; none where the process has nobody.
func coordinator(phase coord.Phase, session uint64) any {
	if session == 0 || phase == coord.Idle {
		return none{}
	}
	return session
}

// none is no value: null in JSON.
type none struct{}

func (none) String() string               { return "-" }
func (none) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

// shownRounds is how many rounds describe shows.
const shownRounds = 5

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
		{"name", "name", s.Name}, {"node", "node", node}, {"phase", "phase", word(phaseWords, s.Phase)}, {"waits_for", "", waits}, {"", "waits for", waitsFor},
		{"epoch", "epoch", s.Epoch}, {"topology", "topology", s.Topology}, {"coordinator", "coordinator", coordinator(s.Phase, s.Coordinator)}, {"started_at", "started", timestamp{s.Started}},
	}
	if s.Attempt > 0 || s.Phase == coord.Waiting {
		r = append(r, field{"attempt", "failed before", s.Attempt}, field{"starts_in_ms", "", millis(s.StartsIn.Milliseconds())})
	}
	t := &s.Tally
	r = append(r,
		field{"", "rounds", uncut(fmt.Sprintf("%d completed, %d cancelled, %d failed, for %d changes of members", t.Completed, t.Cancelled, t.Failed, t.Changes))},
		field{"rounds", "", row{{"started", "", t.Started}, {"completed", "", t.Completed}, {"cancelled", "", t.Cancelled}, {"failed", "", t.Failed}}},
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
		state := word(memberStates, m.State)
		shown := state
		if m.State == coord.MemberAbsent {
			shown += ", leaves in " + age(m.LeavesIn)
		}
		members[i] = row{
			{"session_id", "session", m.Session}, {"role", "role", role}, {"state", "", state}, {"", "state", shown}, {"key", "key", m.Key}, {"data", "data", m.Data},
			{"identity", "", m.Identity}, {"weight", "", m.Weight}, {"order", "", m.Order}, {"token", "token", m.Token}, {"joined_at", "joined", timestamp{m.Joined}},
		}
		if m.State == coord.MemberAbsent {
			members[i] = append(members[i], field{"leaves_in_ms", "", millis(m.LeavesIn.Milliseconds())})
		}
	}
	return append(r, field{"members", "members", members}, field{"last_rounds", "last rounds", roundRows(s.History, shownRounds)})
}

// memberName is a member for people: its key or data, and its session.
func memberName(m *coord.Member) string {
	name := m.Key
	if name == "" {
		name = string(m.Data)
	}
	if name = cell(name); name == "" {
		return fmt.Sprintf("session %d", m.Session)
	}
	return fmt.Sprintf("%s (session %d)", name, m.Session)
}

func optionsRow(o *coord.Options) row {
	return row{
		{"election", "", word(electionWords, o.Election)}, {"debounce_ms", "", millis(o.Debounce.Milliseconds())}, {"round_timeout_ms", "", millis(o.RoundTimeout.Milliseconds())},
		{"backoff_min_ms", "", millis(o.BackoffMin.Milliseconds())}, {"backoff_max_ms", "", millis(o.BackoffMax.Milliseconds())},
		{"return_ms", "", millis(o.Return.Milliseconds())},
	}
}

func optionsText(o *coord.Options) string {
	text := fmt.Sprintf("election %s, back-off %s to %s", word(electionWords, o.Election), o.BackoffMin, o.BackoffMax)
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
func roundRows(history []coord.PastRound, most int) []row {
	rows := []row{}
	for i := len(history) - 1; i >= 0 && len(rows) < most; i-- {
		h := &history[i]
		rows = append(rows, row{
			{"epoch", "epoch", h.Epoch}, {"outcome", "outcome", word(outcomeWords, h.Outcome)}, {"lasted_ms", "lasted", millis(h.Lasted.Milliseconds())},
			{"prepared_ms", "prepared", after(h.Prepared, h.Outcome)}, {"decided_ms", "decided", after(h.Decided, h.Outcome)}, {"members", "members", h.Size},
			{"topology", "", h.Topology}, {"attempt", "attempt", h.Attempt + 1}, {"coordinator", "coordinator", h.Coordinator}, {"started_at", "started", timestamp{h.Started}},
			{"text", "why", h.Text},
		})
	}
	return rows
}

// after is how long something took from the start of a round; none: it never came. In a complete
// round it did, perhaps in no time.
func after(d time.Duration, outcome coord.Outcome) any {
	if d == 0 && outcome != coord.OutcomeCompleted {
		return none{}
	}
	return millis(d.Milliseconds())
}

func processEventRow(n *coord.WatchEvent) row {
	r := row{{"time", "time", clockTime{time.Now()}}}
	switch {
	case n.Absent:
		return append(r, field{"event", "event", "absent"}, field{"", "text", "there is no such process yet"})
	case n.Status != nil:
		s := n.Status
		r = append(r, field{"event", "event", "status"}, field{"phase", "phase", word(phaseWords, s.Phase)}, field{"epoch", "epoch", labelled{"epoch", s.Epoch}},
			field{"topology", "", s.Topology}, field{"coordinator", "", coordinator(s.Phase, s.Coordinator)}, field{"members", "members", labelled{"members", len(s.Members)}})
		for _, m := range s.Members {
			r = append(r, field{"", "member", subline(memberName(&m.Member) + "  " + word(memberStates, m.State))})
		}
		return r
	}
	c := n.Change
	event := map[coord.ChangeKind]string{
		coord.ChangeJoined: "joined", coord.ChangeLeft: "left", coord.ChangeAbsent: "absent", coord.ChangeReturned: "returned", coord.ChangeStarted: "started",
		coord.ChangePhase: "phase", coord.ChangeEnded: "ended", coord.ChangeAltered: "altered", coord.ChangeGone: "gone",
	}
	r = append(r, field{"event", "event", word(event, c.Kind)})
	switch c.Kind {
	case coord.ChangePhase:
		r = append(r, field{"phase", "phase", word(phaseWords, c.Phase)})
	case coord.ChangeEnded:
		r = append(r, field{"outcome", "outcome", word(outcomeWords, c.Outcome)})
	}
	if c.Epoch > 0 {
		r = append(r, field{"epoch", "epoch", labelled{"epoch", c.Epoch}})
	}
	switch {
	case c.Session == 0:
	case c.Kind == coord.ChangeStarted:
		r = append(r, field{"coordinator", "coordinator", labelled{"coordinator", c.Session}})
	default:
		r = append(r, field{"session_id", "session", labelled{"session", c.Session}})
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

// processNames completes.
func processNames(inv *invocation, typed string, yield func(string) bool) error {
	n, err := inv.openNode()
	if err != nil {
		return err
	}
	for p, err := range coord.List(inv.ctx, n, typed) {
		if err != nil || !yield(p.Name) {
			return err
		}
	}
	return nil
}
