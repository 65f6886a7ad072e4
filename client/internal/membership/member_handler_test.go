package membership

import (
	"errors"
	"strconv"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/process/relay"
)

// arrive is a send at the server.
func (w *world) arrive(a *testMember, s Send) {
	var err error
	switch s.Kind {
	case protocol.KindProcessConfirm:
		if s.Step == protocol.StepPrepared && !a.did[did(JobPrepare, s.Epoch)] ||
			s.Step == protocol.StepCompleted && !a.did[did(JobComplete, s.Epoch)] {
			w.fatal("%d confirms step %d of %d, and has not done it", a.session, s.Step, s.Epoch)
		}
		w.apply(func() {
			if s.Step == protocol.StepPrepared {
				err = w.p.Prepared(w.at, a.session, s.Epoch, &w.out)
			} else {
				err = w.p.Completed(w.at, a.session, s.Epoch, &w.out)
			}
		})
	case protocol.KindProcessFail:
		w.apply(func() { err = w.p.Fail(w.at, a.session, s.Epoch, s.Text, &w.out) })
	case protocol.KindProcessComplete:
		w.apply(func() { err = w.p.Complete(w.at, a.session, s.Epoch, s.Payload, &w.out) })
	case protocol.KindProcessSync:
		w.out.Reset()
		if !w.p.Resend(a.session, &w.out) {
			err = protocol.StatusNotFound
		}
		w.deliver()
		w.r.SessionAttached(a.session, &w.messages)
		w.deliverMessages()
	case protocol.KindProcessRequest:
		if s.Low == 0 || s.Low > s.Number || len(s.To) == 0 {
			w.fatal("%d sends %+v", a.session, s)
		}
		err = w.r.Request(relay.Request{From: a.session, Epoch: s.Epoch, Number: s.Number, Low: s.Low, To: s.To,
			Payload: s.Payload}, &w.messages)
		w.deliverMessages()
	case protocol.KindProcessReply:
		err = w.r.Reply(relay.Reply{From: a.session, To: s.To[0], Epoch: s.Epoch, Number: s.Number,
			Refused: s.Refused, Payload: s.Payload}, &w.messages)
		w.deliverMessages()
	}
	status := protocol.StatusOf(err)
	if status == protocol.StatusBadRequest {
		w.fatal("%d sends %+v: %v", a.session, s, err)
	}
	if w.chance(4) && !w.quiet {
		status = protocol.StatusUnavailable // the answer is lost
	}
	if !a.dead {
		a.m.Answered(w.now(), s, status)
	}
}

func did(k JobKind, epoch uint64) string { return k.String() + " " + strconv.FormatUint(epoch, 10) }

// run begins the next callback, or ends the one that runs.
func (w *world) run(a *testMember) {
	if a.running == nil {
		j, ok := a.m.NextJob()
		if !ok {
			return
		}
		w.begins(a, &j)
		a.running = &j
		if w.chance(2) {
			return // it takes its time
		}
	}
	j := *a.running
	a.running = nil
	err := w.does(a, &j)
	if err == nil && j.Round != nil {
		a.did[did(j.Kind, j.Round.Epoch)] = true
	}
	a.m.JobDone(w.now(), j, err)
}

// begins checks what may run when.
func (w *world) begins(a *testMember, j *Job) {
	w.seen[j.Kind.String()]++
	if a.over {
		w.fatal("%d: %v runs after terminate", a.session, j.Kind)
	}
	switch j.Kind {
	case JobTerminate:
		if a.open != 0 || len(a.asked) > 0 {
			w.fatal("%d terminates with round %d open and messages %v", a.session, a.open, a.asked)
		}
	case JobPrepare:
		if a.open != 0 || j.Round.Epoch <= a.last && !j.Round.Resumed {
			w.fatal("%d prepares %d after %d, with %d open", a.session, j.Round.Epoch, a.last, a.open)
		}
		if j.Round.Token < j.Round.Epoch {
			w.fatal("token %d is below epoch %d", j.Round.Token, j.Round.Epoch)
		}
		a.last = j.Round.Epoch
	case JobGivenUp:
		if a.asked[j.Number] != j.Round.Epoch || a.open == j.Round.Epoch {
			w.fatal("%d: message %d of %d is given up; open %d, asked %v", a.session, j.Number, j.Round.Epoch, a.open, a.asked)
		}
		delete(a.asked, j.Number)
	default:
		if a.open != j.Round.Epoch {
			w.fatal("%d: %v of %d with %d open", a.session, j.Kind, j.Round.Epoch, a.open)
		}
	}
	if !a.attached {
		w.seen["ran while cut off"]++
	}
}

// does is the handler.
func (w *world) does(a *testMember, j *Job) error {
	switch j.Kind {
	case JobPrepare:
		if err := w.fails(); err != nil {
			return err
		}
		a.open = j.Round.Epoch
	case JobCoordinate:
		if j.Round.Coordinator != a.session {
			w.fatal("%d coordinates the round of %d", a.session, j.Round.Coordinator)
		}
		if err := w.fails(); err != nil {
			return err
		}
		if a.did[did(JobCoordinate, j.Round.Epoch)] {
			w.fatal("%d coordinates %d twice", a.session, j.Round.Epoch)
		}
		var to []uint64
		for _, o := range j.Round.Members {
			to = append(to, o.Session)
		}
		for range 1 + w.rnd.IntN(3) {
			n, err := a.m.Request(j.Round.Epoch, to, []byte("agree"))
			if err == nil {
				a.asked[n] = j.Round.Epoch
			} else if !errors.Is(err, ErrRoundOver) {
				w.fatal("ask: %v", err)
			}
		}
	case JobAnswered:
		if a.asked[j.Number] != j.Round.Epoch || len(j.Answers) != len(j.Round.Members) {
			w.fatal("%d has %d answers of %d members to %d", a.session, len(j.Answers), len(j.Round.Members), j.Number)
		}
		if delete(a.asked, j.Number); len(a.asked) > 0 {
			break
		}
		if err := a.m.Complete(j.Round.Epoch, []byte(strconv.FormatUint(j.Round.Epoch, 10))); err != nil && !errors.Is(err, ErrRoundOver) {
			w.fatal("complete: %v", err)
		}
	case JobProcess:
		if err := w.fails(); err != nil {
			return err
		}
		key := [4]uint64{a.session, j.Round.Epoch, j.From, j.Number}
		if w.executed[key] {
			w.fatal("message %v runs twice with success", key)
		}
		w.executed[key] = true
		if w.chance(3) {
			a.async = append(a.async, *j)
			return nil
		}
		w.replies(a, j)
	case JobComplete:
		if s := string(j.Round.Result); s != "" && s != strconv.FormatUint(j.Round.Epoch, 10) {
			w.fatal("round %d has result %q", j.Round.Epoch, s)
		}
		w.completed[j.Round.Epoch] = true
		a.open, a.agreed = 0, j.Round.Epoch
	case JobCancel:
		if !a.superior[j.Round.Epoch] {
			w.fatal("%d cancels %d before its context ended", a.session, j.Round.Epoch)
		}
		if !a.ended && !errors.Is(a.m.Ended(), ErrNotMember) {
			w.cancelled[j.Round.Epoch] = true
		}
		a.open = 0
	case JobTerminate:
		a.over = true
	}
	return nil
}

func (w *world) replies(a *testMember, j *Job) {
	err := a.m.Reply(j.Round.Epoch, j.From, j.Number, []byte("yes"))
	if err != nil && !errors.Is(err, ErrRoundOver) && !errors.Is(err, ErrRequestGone) {
		w.fatal("reply: %v", err)
	}
	if err == nil {
		if again := a.m.Reply(j.Round.Epoch, j.From, j.Number, []byte("no")); !errors.Is(again, ErrReplied) {
			w.fatal("a second reply gives %v", again)
		}
	}
}

// take takes what the machine wants.
func (w *world) take(a *testMember) {
	r := a.m.Take()
	a.sends = append(a.sends, r.Sends...)
	for _, e := range r.Superseded {
		a.superior[e] = true
		if a.running != nil && a.running.Round != nil && a.running.Round.Epoch == e && a.running.Kind != JobComplete {
			w.seen["context ended while a callback ran"]++
		}
	}
}
