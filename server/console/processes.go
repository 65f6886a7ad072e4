package console

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/process"
)

// processesPage lists the coordination processes of a node.
var processesPage = (&nodeList[process.Info]{
	path: "/processes",
	page: page{Section: "Processes", Title: "Processes in",
		Lead: "The members of a process agree in rounds: all prepare, the coordinator decides, all complete."},
	table: newTable("processes", "Processes", "No process here.",
		col("Process"), col("Phase"), numCol("Members"), numCol("Epoch"), col("Coordinator")),
	read: process.List, name: func(x *process.Info) string { return x.Name },
	row: func(_ context.Context, n *client.Node, x *process.Info) row {
		return row{Key: encodeName(x.Name), Cells: []cell{
			nameCell(x.Name, objectURL(admin.ObjectProcess, n.Path(), x.Name)), phaseCell(x.Phase),
			number(uint64(x.Members)), number(x.Epoch), coordinatorCell(n.Path(), x.Phase, x.Coordinator, ""),
		}}
	},
}).show

func phaseCell(phase process.Phase) cell {
	c := text(strings.ToLower(phase.String()))
	switch phase {
	case process.Completed:
		c.Kind = "good"
	case process.Idle:
		c.Kind = "quiet"
	default:
		c.Kind = "warn"
	}
	return c
}

// coordinatorCell is the coordinator of the present or last round; none for a process without
// members.
func coordinatorCell(path string, phase process.Phase, session uint64, key string) cell {
	if session == 0 || phase == process.Idle {
		return none()
	}
	return sessionCell(path, session, key)
}

// processPage shows a process: its members, the round, whom it waits for, and the last rounds.
func processPage(ctx context.Context, v *viewer, q url.Values) (*page, error) {
	path, n, name, err := objectOf(ctx, v, q)
	if err != nil {
		return nil, err
	}
	s, err := process.NewOperator(n, name).Describe(ctx)
	if err != nil {
		return nil, err
	}
	p := &page{
		Section: "Processes", Node: path, Title: "Process", Name: visible(name),
		Crumbs: nodeCrumbs(path, link{"Processes", address("/processes", "node", path)}),
	}
	lagging := s.Lagging()
	waits := "nobody"
	switch {
	case len(lagging) > 0:
		waits = plural(uint64(len(lagging)), "member")
		names := make([]string, 0, 5)
		for i := range lagging {
			if len(names) == cap(names) {
				names = append(names, fmt.Sprintf("and %d more", len(lagging)-len(names)))
				break
			}
			names = append(names, memberText(&lagging[i].Member))
		}
		p.Notes = append(p.Notes, note{Tone: "warn", Text: fmt.Sprintf("Round %d waits for %s.", s.Epoch,
			strings.Join(names, ", "))})
	case s.Phase == process.Waiting:
		waits = "the next round, in " + age(s.StartsIn)
	case s.Phase == process.Coordinating:
		waits = "the coordinator"
	}
	if s.Attempt > 0 {
		p.Notes = append(p.Notes, note{Tone: "bad", Text: "The rounds of these members have failed " +
			timesText(s.Attempt) + "."})
	}
	phase := phaseCell(s.Phase)
	p.Facts = []fact{
		{"phase", "Phase", phase},
		{"waits", "Waits for", text(waits)},
		{"epoch", "Round (epoch)", text(group(s.Epoch))},
		{"coordinator", "Coordinator", coordinatorCell(path, s.Phase, s.Coordinator, keyOf(s, s.Coordinator))},
		{"started", "Round began", since(s.Started)},
		{"members", "Members", text(group(uint64(len(s.Members))))},
		{"rounds", "Rounds", text(fmt.Sprintf("%s completed, %s cancelled, %s failed",
			group(s.Tally.Completed), group(s.Tally.Cancelled), group(s.Tally.Failed)))},
	}
	members := newTable("members", "Members", "It has no members.",
		col("Member"), col("State in the round"), col("Role"), col("Member for"), numCol("Token"), col("Data"))
	operates := v.mayOperate(ctx, path)
	if operates {
		p.offer(ctx, v, "Force a round", "force-round", "node", path, "name", encodeName(name))
		members.Columns = append(members.Columns, col(actionColumn))
	}
	for i := range s.Members {
		if len(members.Rows) == maxHoldings {
			members.Count = fmt.Sprintf("%s of %s", group(maxHoldings), group(uint64(len(s.Members))))
			break
		}
		r := memberRow(path, s, &s.Members[i])
		if operates {
			session := strconv.FormatUint(s.Members[i].Session, 10)
			evict := actionURL("evict", "node", path, "name", encodeName(name), "session", session)
			r.Cells = append(r.Cells, cell{Text: "Evict", Href: evict})
		}
		members.Rows = append(members.Rows, r)
	}
	rounds := newTable("rounds", "Last rounds", "No round is over yet.",
		column{"Epoch", "num id"}, col("Outcome"), col("Began"), numCol("Took"), numCol("All prepared"), numCol("Decided"),
		numCol("Members"), col("Coordinator"), col("Why it was given up"))
	for i := len(s.History) - 1; i >= 0; i-- {
		h := &s.History[i]
		outcome := text(strings.ToLower(h.Outcome.String()))
		outcome.Kind = map[process.Outcome]string{process.OutcomeCompleted: "good", process.OutcomeFailed: "bad"}[h.Outcome]
		step := func(reached bool, c cell) cell {
			if !reached && h.Outcome != process.OutcomeCompleted {
				return cell{Text: "–", Kind: "num quiet none"}
			}
			return c
		}
		why := none()
		if h.Text != "" {
			why = text(visible(h.Text))
		}
		rounds.Rows = append(rounds.Rows, row{Key: strconv.FormatUint(h.Epoch, 10), Cells: []cell{
			{Text: group(h.Epoch), Kind: "num id"}, outcome, since(h.Started), duration(h.Lasted),
			step(h.Prepared > 0, duration(h.Prepared)), step(h.Decided > 0, duration(h.Decided)),
			number(uint64(h.Size)), sessionCell(path, h.Coordinator, keyOf(s, h.Coordinator)), why,
		}})
	}
	p.Tables = []table{members, rounds}
	return p, nil
}

// keyOf is the key of the member with a session; empty: it has none, or is no member any more.
func keyOf(s *process.Status, session uint64) string {
	for i := range s.Members {
		if s.Members[i].Session == session {
			return s.Members[i].Key
		}
	}
	return ""
}

// memberText is a member for people: its key, or its session.
func memberText(m *process.Member) string {
	if m.Key != "" {
		return visible(m.Key) + " (session " + strconv.FormatUint(m.Session, 10) + ")"
	}
	return "session " + strconv.FormatUint(m.Session, 10)
}

func memberRow(path string, s *process.Status, m *process.MemberStatus) row {
	state := text(strings.ToLower(m.State.String()))
	switch m.State {
	case process.MemberPreparing, process.MemberCompleting, process.MemberResuming:
		state.Kind, state.Note = "warn", "the round waits for it"
	case process.MemberPrepared, process.MemberCompleted:
		state.Kind = "good"
	case process.MemberAbsent:
		state.Kind, state.Note = "warn", "it loses its place in "+age(m.LeavesIn)
	}
	role := quiet("member")
	if m.Session == s.Coordinator && s.Phase != process.Waiting {
		role = text("coordinator")
	}
	data := none()
	if len(m.Data) > 0 {
		data = cell{Text: visible(string(cut(m.Data, 200))), Kind: "data"}
	}
	return row{Key: strconv.FormatUint(m.Session, 10) + " " + strconv.FormatUint(m.Order, 10), Cells: []cell{
		sessionCell(path, m.Session, m.Key), state, role, since(m.Joined), number(m.Token), data,
	}}
}
