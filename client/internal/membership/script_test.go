package membership

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/signalbox-dev/signalbox/protocol"
)

func init() { flag.Var(flag.Lookup("rewrite").Value, "update", "rewrite the scripts") }

// script is a machine of session 1 whose retries wait without jitter worth showing, with what came
// out of it so far.
type script struct {
	m    *Machine
	now  time.Duration
	job  *Job
	sent map[uint64]Send
}

// TestScripts runs testdata: inputs, one a line, and what came out of each.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{m: New(1, Options{MaxProcessFailures: 2}), sent: map[uint64]Send{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			for _, line := range strings.Split(d.Input, "\n") {
				if line = strings.TrimSpace(line); line == "" {
					continue
				}
				fmt.Fprintf(&out, "%s:%s\n", line, s.step(t, strings.Fields(line)))
			}
			return out.String()
		})
	})
}

// fields are the words of a line of the form name=value.
func fields(t *testing.T, words []string) (num map[string]uint64, text map[string]string) {
	num, text = map[string]uint64{}, map[string]string{}
	for _, w := range words {
		k, v, ok := strings.Cut(w, "=")
		if !ok {
			t.Fatalf("%q is not of the form name=value", w)
		}
		text[k] = v
		num[k], _ = strconv.ParseUint(v, 10, 64)
	}
	return num, text
}

func list(text string) (l []uint64) {
	for f := range strings.SplitSeq(text, ",") {
		if n, err := strconv.ParseUint(f, 10, 64); err == nil {
			l = append(l, n)
		}
	}
	return l
}

var roundKinds = map[string]protocol.ProcessRoundKind{
	"prepare": protocol.RoundPrepare, "coordinate": protocol.RoundCoordinate, "cancel": protocol.RoundCancel,
	"complete": protocol.RoundComplete,
	"resume":   protocol.RoundResume, "removed": protocol.RoundRemoved,
}

var messageKinds = map[string]protocol.ProcessMessageKind{
	"request": protocol.MessageRequest, "reply": protocol.MessageReply, "refused": protocol.MessageRefused,
}

func (s *script) step(t *testing.T, f []string) string {
	var err error
	what := ""
	switch f[0] {
	case "at":
		if s.now, err = time.ParseDuration(f[1]); err != nil {
			t.Fatal(err)
		}
		s.m.Tick(s.now)
	case "round":
		num, text := fields(t, f[2:])
		e := &protocol.ProcessRound{
			Session: 1, Kind: roundKinds[f[1]], Epoch: num["epoch"], Token: num["epoch"],
			Coordinator: num["coordinator"], CompletedEpoch: num["completed"],
			Removal: protocol.ProcessRemoval(num["removal"]), Result: []byte(text["result"]),
		}
		for _, m := range list(text["members"]) {
			e.Members = append(e.Members, protocol.ProcessMember{Session: m})
		}
		s.m.HandleRound(s.now, e)
	case "message":
		num, text := fields(t, f[2:])
		s.m.HandleMessage(s.now, &protocol.ProcessMessage{
			Session: 1, Kind: messageKinds[f[1]], From: num["from"], Epoch: num["epoch"], Number: num["number"],
			Low: num["low"], Payload: []byte(text["payload"]),
		})
	case "job":
		j, ok := s.m.NextJob()
		if what = " none"; ok {
			s.job, what = &j, " "+showJob(&j)
		}
	case "ran":
		if len(f) > 1 {
			err = errors.New(strings.Join(f[1:], " "))
		}
		s.m.JobDone(s.now, *s.job, err)
		err = nil
	case "ask":
		num, text := fields(t, f[1:])
		_, err = s.m.Request(num["epoch"], list(text["to"]), []byte(text["payload"]))
	case "fail":
		num, text := fields(t, f[1:])
		err = s.m.Fail(num["epoch"], errors.New(text["text"]))
	case "giveup":
		n, _ := strconv.ParseUint(f[1], 10, 64)
		s.m.GiveUp(n)
	case "respond":
		num, text := fields(t, f[1:])
		err = s.m.Reply(num["epoch"], num["to"], num["number"], []byte(text["payload"]))
	case "complete":
		num, text := fields(t, f[1:])
		err = s.m.Complete(num["epoch"], []byte(text["result"]))
	case "answered":
		id, _ := strconv.ParseUint(f[1], 10, 64)
		status := protocol.StatusOK
		for ; status.String() != f[2]; status++ {
			if status > protocol.StatusInternal {
				t.Fatalf("no status %s", f[2])
			}
		}
		s.m.Answered(s.now, s.sent[id], status)
	case "connected":
		s.m.Connected(s.now)
	case "end":
		num, _ := fields(t, f[1:])
		s.m.End(s.now, num["completed"], errors.New("left"))
	default:
		t.Fatalf("unknown input %q", f[0])
	}
	if err != nil {
		what += " " + err.Error()
	}
	r := s.m.Take()
	for _, e := range r.Superseded {
		what += fmt.Sprintf("\n  context of %d ends", e)
	}
	for _, x := range r.Sends {
		s.sent[x.ID] = x
		what += "\n  " + showSend(&x)
	}
	for _, x := range r.Slow {
		what += fmt.Sprintf("\n  message %d of %d lacks answers of %v", x.Number, x.Epoch, x.Missing)
	}
	if f[0] != "job" && s.m.Ended() != nil {
		what += "\n  over: " + s.m.Ended().Error()
	}
	return what
}

func showJob(j *Job) string {
	if j.Round == nil {
		return j.Kind.String()
	}
	text := fmt.Sprintf("%v %d", j.Kind, j.Round.Epoch)
	switch j.Kind {
	case JobProcess:
		text += fmt.Sprintf(" from %d number %d: %s", j.From, j.Number, j.Payload)
	case JobAnswered, JobGivenUp:
		text += fmt.Sprintf(" number %d:", j.Number)
		for _, a := range j.Answers {
			text += fmt.Sprintf(" %d says %s", a.From, a.Payload)
		}
	case JobComplete:
		text += fmt.Sprintf(" result %q", j.Round.Result)
	}
	return text
}

func showSend(s *Send) string {
	text := fmt.Sprintf("send %d %v %d", s.ID, s.Kind, s.Epoch)
	switch s.Kind {
	case protocol.KindProcessConfirm:
		text += map[protocol.ProcessStep]string{protocol.StepPrepared: " prepared", protocol.StepCompleted: " completed"}[s.Step]
	case protocol.KindProcessFail:
		text += ": " + s.Text
	case protocol.KindProcessComplete:
		text += fmt.Sprintf(" result %q", s.Payload)
	case protocol.KindProcessRequest:
		text += fmt.Sprintf(" number %d low %d to %v: %s", s.Number, s.Low, s.To, s.Payload)
	case protocol.KindProcessReply:
		text += fmt.Sprintf(" to %d number %d", s.To[0], s.Number)
		if s.Refused {
			return text + " refused"
		}
		text += fmt.Sprintf(": %s", s.Payload)
	}
	return text
}
