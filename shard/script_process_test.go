package shard

import (
	"fmt"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/process"
)

// processCommand makes a command about a process of a line such as "join a p key=k", "confirm a p
// of=2 prepared", "complete a p of=2 result=r". of= is the epoch of the round.
func processCommand(
	verb string, a scriptArgs, name []byte, session uint64, head func() protocol.Head,
) (CommandKind, protocol.Message) {
	text := string(a.data("text"))
	switch verb {
	case "join":
		return CmdProcessJoin, &protocol.ProcessJoin{Head: head(), Name: name, Key: string(a.data("key")), Data: a.data("data"),
			Options: protocol.ProcessOptions{
				RoundTimeout: a.num("round", 0), Return: a.num("return", 0), Debounce: a.num("debounce", 0),
			}}
	case "quit":
		return CmdProcessLeave, &protocol.ProcessLeave{Head: head(), Name: name}
	case "confirm":
		step := protocol.StepCompleted
		if a.has("prepared") {
			step = protocol.StepPrepared
		}
		return CmdProcessConfirm,
			&protocol.ProcessConfirm{Session: session, Name: name, Epoch: a.num("of", 0), Step: step}
	case "fail":
		return CmdProcessFail, &protocol.ProcessFail{Session: session, Name: name, Epoch: a.num("of", 0), Text: text}
	case "complete":
		return CmdProcessComplete,
			&protocol.ProcessComplete{Head: head(), Name: name, Epoch: a.num("of", 0), Result: a.data("result")}
	case "force":
		return CmdProcessForce, &protocol.ProcessForceRound{Node: a.num("node", 1), Name: name, Text: text}
	case "evict":
		return CmdProcessEvict,
			&protocol.ProcessEvict{Node: a.num("node", 1), Name: name, Session: session, Text: text}
	case "alter":
		return CmdProcessAlter, &protocol.ProcessAlter{Node: a.num("node", 1), Name: name,
			Options: protocol.ProcessOptions{RoundTimeout: a.num("round", 0)}}
	}
	return 0, nil
}

// round shows what a member is told.
func (x *scriptRunner) round(b *strings.Builder, e *Event) {
	q := e.Process
	word := [...]string{
		process.EventPrepare: "prepare", process.EventCoordinate: "coordinate",
		process.EventCancel: "cancel", process.EventComplete: "complete",
		process.EventResume: "resume", process.EventRemoved: "removed",
	}[q.Kind]
	fmt.Fprintf(b, "  %s of %s: %s epoch=%d", x.sessionName(e.Session), e.Name, word, q.Epoch)
	switch q.Kind {
	case process.EventPrepare, process.EventResume:
		var list []string
		for _, m := range q.Members {
			list = append(list, x.sessionName(m.Session))
		}
		fmt.Fprintf(b, " coordinator=%s members=%s", x.sessionName(q.Coordinator), strings.Join(list, ","))
	case process.EventComplete:
		fmt.Fprintf(b, " result=%q", q.Result)
	case process.EventCancel, process.EventRemoved:
		fmt.Fprintf(b, " (%s)", q.Text)
	}
	if q.CompletedEpoch > 0 {
		fmt.Fprintf(b, " completed=%d", q.CompletedEpoch)
	}
	b.WriteString("\n")
}

// processChanges shows what watches see.
func (x *scriptRunner) processChanges(b *strings.Builder) {
	for _, c := range x.out.ProcessChanges {
		word := [...]string{
			protocol.ProcessJoined: "joined", protocol.ProcessLeft: "left", protocol.ProcessAbsent: "absent",
			protocol.ProcessReturned: "returned",
			protocol.ProcessStarted:  "round of", protocol.ProcessPhaseChanged: "phase",
			protocol.ProcessRoundEnded: "round", protocol.ProcessAltered: "options",
			protocol.ProcessDeleted: "gone",
		}[c.Kind]
		fmt.Fprintf(b, "  change %s: %s", c.Name, word)
		if c.Session != 0 {
			fmt.Fprintf(b, " %s", x.sessionName(c.Session))
		}
		switch c.Kind {
		case protocol.ProcessPhaseChanged:
			fmt.Fprintf(b, " %s", c.Phase)
		case protocol.ProcessRoundEnded:
			fmt.Fprintf(b, " %s", c.Outcome)
		}
		fmt.Fprintf(b, " epoch=%d topology=%d", c.Epoch, c.Topology)
		if c.Text != "" {
			fmt.Fprintf(b, " (%s)", c.Text)
		}
		b.WriteString("\n")
	}
}

// describeProcess shows a process page by page, and what the list says of it.
func (x *scriptRunner) describeProcess(a scriptArgs, node uint64) string {
	var b strings.Builder
	name := a.words[0]
	req := protocol.ProcessDescribe{
		Node: node, Name: []byte(name), Flags: protocol.WithProcessMembers | protocol.WithProcessHistory,
		Limit:       uint32(a.num("limit", 0)),
		Consistency: protocol.Relaxed,
	}
	for first := true; first || len(req.Cursor) > 0; first = false {
		var s protocol.ProcessStatus
		if err := x.m.Processes().Describe(&req, &s); err != nil {
			return err.Error() + "\n"
		}
		if first {
			fmt.Fprintf(&b, "phase %s epoch=%d topology=%d members=%d coordinator=%s start=%d\n",
				protocol.ProcessPhase(s.Phase), s.Epoch, s.Topology, s.NumMembers,
				x.sessionName(s.Coordinator), s.Start)
		} else {
			b.WriteString("--\n")
		}
		for _, p := range s.Members {
			fmt.Fprintf(&b, "  %s order=%d standing=%d token=%d identity=%q key=%q until=%d\n",
				x.sessionName(p.Member.Session), p.Member.Order, p.Status, p.Token,
				p.Member.Identity, p.Member.Key, p.Until)
		}
		for _, e := range s.History {
			fmt.Fprintf(&b, "  round %d: %s size=%d %s\n", e.Epoch,
				protocol.ProcessOutcome(e.Outcome), e.Size, e.Text)
		}
		req.Cursor = s.Cursor
	}
	return b.String()
}

// listProcesses shows the list, a name a page.
func (x *scriptRunner) listProcesses(a scriptArgs, node uint64) string {
	var b strings.Builder
	req := protocol.ProcessList{Node: node, Prefix: a.data("prefix"), Limit: 1, Consistency: protocol.Relaxed}
	for first := true; first || len(req.Cursor) > 0; first = false {
		var s protocol.ProcessListReply
		if err := x.m.Processes().List(&req, &s); err != nil {
			return err.Error() + "\n"
		}
		for _, p := range s.Processes {
			fmt.Fprintf(&b, "%s %s epoch=%d members=%d\n", p.Name, protocol.ProcessPhase(p.Phase),
				p.Epoch, p.NumMembers)
		}
		req.Cursor = s.Cursor
	}
	return b.String()
}
