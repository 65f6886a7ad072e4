package core

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/sessionstate"
	"github.com/signalbox-dev/signalbox/protocol"
)

// lossCause is the cause of a Loss.
type lossCause uint8

const (
	unexplained lossCause = iota

	// What kept a session from being renewed.
	unreachable
	noLeader
	answeredLate
	refused
	overloaded
	stoodStill
	slept

	// What a server says.
	releasedByOperator
	deleted
	maxHold
	preempted
	nodeDeleted
	killed
	takenOver
)

// lossCauses are the names of the causes, and what a user can do who needs no figures for it.
var lossCauses = [...]struct{ name, advice string }{
	unexplained:        {"unknown", ""},
	unreachable:        {"unreachable", "check that the instances run, and the network between them and this machine"},
	noLeader:           {"no_leader", "check the cluster with signalbox cluster health: a majority of the instances must run"},
	answeredLate:       {"answered_late", "check the disks of the instances, and the network between them"},
	refused:            {"refused", "give the client credentials that are valid, with the right to use the node"},
	overloaded:         {"overloaded", "raise the limit that the refusal names, or send less"},
	stoodStill:         {"process_stood_still", "give it CPU (a CPU limit that stops it counts as nr_throttled in its cgroup's cpu.stat), or a timeout of %s"},
	slept:              {"machine_slept", "keep it awake while it holds something, or give a timeout of %s"},
	releasedByOperator: {"released_by_operator", "ask the operator before it is acquired again; the audit log says who it was"},
	deleted:            {"deleted", "create the semaphore again, unless it was deleted for good"},
	maxHold:            {"max_hold", "extend the lease in time, or have a longer hold allowed"},
	preempted:          {"preempted", "yield when the lease is preempted, or acquire with a higher priority"},
	nodeDeleted:        {"node_deleted", "create the coordination node again, unless it was deleted for good"},
	killed: {"session_ended_by_operator",
		"ask the operator before another session is started; the audit log says who it was"},
	takenOver: {"taken_over", "let one process at a time restore a saved session"},
}

// Loss is the end of a session or of a lease that its holder did not ask for, and why it ended. It
// is the error that the session or the lease ended with: errors.As finds it there.
type Loss struct {
	// Cause is one of: released_by_operator, deleted, max_hold, preempted, node_deleted,
	// session_ended_by_operator, taken_over, which the server said; process_stood_still,
	// machine_slept, unreachable, no_leader, answered_late, refused, overloaded, which kept the
	// session from being renewed; or unknown.
	Cause  string
	Since  time.Duration // from the last request that renewed the session to the end
	Stood  time.Duration // how long the cause lasted in that time; 0: the server said it
	Steps  []string      // what happened, with ages, at most eight
	Advice string        // a sentence; empty: nothing is to be changed

	what string // the cause in words; empty: err says it
	err  error  // what ended
	last error  // what kept the session from being attached
}

// Error implements error.
func (l *Loss) Error() string {
	switch {
	case l.what == "" && l.err == nil: // a program's own
		return l.Cause
	case l.what == "":
		return l.err.Error()
	}
	return "the session was not renewed in time: " + l.what
}

// MarshalJSON gives programs the fields, with times in milliseconds.
func (l *Loss) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Cause  string   `json:"cause"`
		Since  int64    `json:"since_ms"`
		Stood  int64    `json:"stood_ms"`
		Steps  []string `json:"steps"`
		Advice string   `json:"advice"`
	}{l.Cause, l.Since.Milliseconds(), l.Stood.Milliseconds(), slices.Concat([]string{}, l.Steps), l.Advice})
}

// Unwrap returns the error without the cause, such as ErrNotRenewed.
func (l *Loss) Unwrap() error { return l.err }

// Is reports whether the user can mend what kept the session from being attached.
func (l *Loss) Is(target error) bool {
	return (target == protocol.StatusUnauthenticated || target == ErrHandshake) && errors.Is(l.last, target)
}

// endCauses are the causes that a server says with the end of a session. It does not know why one was
// not renewed.
var endCauses = map[protocol.EndReason]lossCause{protocol.EndKilled: killed, protocol.EndNodeDropped: nodeDeleted}

// goneBy is the cause that a refusal says because the session has ended.
func goneBy(err error) lossCause {
	if x, ok := errors.AsType[*protocol.Error](err); ok && x.Message == protocol.NodeDropped {
		return nodeDeleted
	}
	return unexplained
}

// maxSteps is the length of Loss.Steps. One of them is the last renewal.
const maxSteps = 8

// lossStep is why a session was not renewed, once or several times in a row.
type lossStep struct {
	at       time.Duration // of the last time
	instance uint64        // 0: whichever would answer
	cause    lossCause
	err      error
	times    int
}

// trouble is what a session that was not answered knows of the time since it was last renewed. That
// time is divided among causes.
type trouble struct {
	renewed time.Duration // the renewal that it follows
	by      uint64        // the instance that answered it; 0: it is not known
	until   time.Duration // the time before that is accounted for
	spent   [stoodStill]time.Duration
	silent  []uint64      // the instances that were not reached since one answered
	streak  time.Duration // for how long they were not
	well    uint64        // the instance that answered last that it does not lead, if it did not fail since
	steps   []lossStep    // the latest
}

// stalls are the latest steps of an engine that were late while a timer was due: the process did not
// run.
type stalls struct {
	list [maxSteps]stall
	n    int
}

type stall struct {
	from, to time.Duration
	slept    time.Duration // of the time between them
	ahead    time.Duration // that the time of day ran ahead instead, which proves nothing
}

// asleep reports whether it was the machine that stood still.
func (x *stall) asleep() bool { return x.slept > (x.to-x.from)/2 }

// minStall is the shortest lateness of a step that may matter to a session.
const minStall = 50 * time.Millisecond

// noteStall keeps one.
func noteStall(e *Engine, x stall) {
	if e.stalls == nil {
		e.stalls = new(stalls)
	}
	e.stalls.list[e.stalls.n%maxSteps] = x
	e.stalls.n++
}

// stood is for how long the process did not run in a time, and for how long the machine slept.
func (l *stalls) stood(from, to time.Duration) (stood, slept time.Duration) {
	if l == nil {
		return 0, 0
	}
	for _, x := range l.list {
		d := max(0, min(to, x.to)-max(from, x.from))
		if x.asleep() {
			slept += d
		} else {
			stood += d
		}
	}
	return stood, slept
}

// failed notes why a request was not answered yet. heard is when its instance was last heard.
func (r *Request) failed(e *Engine, instance uint64, heard time.Duration, err error) {
	r.last = err
	if a, ok := r.op.(*attach); ok && a.before == nil {
		if heard > a.sent { // the instance speaks, and has not answered this
			heard = e.now
		}
		accountOf(e, a.s).paused(e, a.sent)
		noteFailure(e, a.s, instance, heard, err)
	}
}

// heardOn is when a connection was last heard, for a request that waits there; 0: there is none. One
// that has answered the pings for the session speaks still.
func heardOn(e *Engine, r *Request, c *Conn) time.Duration {
	switch x, ok := r.op.(*attach); {
	case c == nil:
		return 0
	case ok && x.s.attachment != nil && x.s.attachment.conn == c &&
		(c.keepAlive.unheard <= c.heard || e.now-c.keepAlive.unheard < minStall):
		return e.now
	}
	return c.heard
}

// causeOf is the cause that an error of an attach, or the end of a connection, is an example of.
func causeOf(err error) lossCause {
	switch _, answered := errors.AsType[*protocol.Error](err); {
	case errors.Is(err, protocol.StatusUnauthenticated), errors.Is(err, protocol.StatusForbidden), errors.Is(err, ErrHandshake):
		return refused
	case errors.Is(err, protocol.StatusOverloaded):
		return overloaded
	case errors.Is(err, protocol.StatusWrongShard), errors.Is(err, protocol.StatusUnavailable), err == errMoved:
		return noLeader
	case answered: // such as INTERNAL
		return unexplained
	}
	return unreachable
}

// noteFailure notes what kept a session from being renewed until now.
func noteFailure(e *Engine, s *Session, instance uint64, heard time.Duration, err error) {
	if s.err != nil {
		return
	}
	t := accountOf(e, s)
	cause := causeOf(err)
	if t.add(e, instance, heard, cause, true); cause == unreachable && heard == e.now {
		cause = answeredLate
	}
	if n := len(t.steps); n > 0 {
		if x := &t.steps[n-1]; x.instance == instance && x.cause == cause && x.err.Error() == err.Error() {
			x.at, x.times = e.now, x.times+1
			return
		}
	}
	if len(t.steps) == maxSteps-1 {
		t.steps = slices.Delete(t.steps, 1, 2) // the first one is where it began
	}
	t.steps = append(t.steps, lossStep{e.now, instance, cause, err, 1})
}

// accountOf is the account of the time since the last renewal of a session. It begins when the next one
// was due.
func accountOf(e *Engine, s *Session) *trouble {
	if s.trouble == nil || s.trouble.renewed < s.renewedAt() {
		s.trouble = newTrouble(e, s)
	}
	return s.trouble
}

func newTrouble(e *Engine, s *Session) *trouble {
	renewed := s.renewedAt()
	t := &trouble{renewed: renewed, until: min(renewed+s.period(s.machine.Timeout()), e.now)}
	if a := s.attachment; a != nil {
		t.by = a.conn.instance
	}
	return t
}

// spend accounts for the time until a moment.
func (t *trouble) spend(e *Engine, cause lossCause, to time.Duration) (d time.Duration) {
	if to > t.until {
		stood, slept := e.stalls.stood(t.until, to)
		d = to - t.until - stood - slept
		t.spent[cause] += d
		t.until = to
	}
	return d
}

// paused accounts for the time before a request was sent: what came last is why it was not sooner.
func (t *trouble) paused(e *Engine, sent time.Duration) {
	if n := len(t.steps); n > 0 {
		cause := t.steps[n-1].cause
		if d := t.spend(e, cause, sent); cause == unreachable {
			t.streak += d
		}
	}
}

// add accounts for the time until now. An instance that was heard in it did answer, if not for the
// session. failed: it will not answer any more.
func (t *trouble) add(e *Engine, instance uint64, heard time.Duration, cause lossCause, failed bool) {
	if cause != unreachable {
		t.spend(e, cause, e.now)
		t.heardFrom(instance, cause)
		return
	}
	if t.spend(e, answeredLate, heard) > 0 {
		t.heardFrom(instance, noLeader)
	}
	for _, c := range e.conns { // others may have answered what others asked
		if c.up && c.instance != instance && c.heard > t.until {
			t.spend(e, noLeader, c.heard)
			t.heardFrom(c.instance, noLeader)
		}
	}
	d := t.spend(e, unreachable, e.now)
	t.streak += d
	if !failed && d < minStall { // it may answer yet
		return
	}
	if !slices.Contains(t.silent, instance) {
		t.silent = append(t.silent, instance)
	}
	if instance == t.well || instance == 0 {
		t.well = 0
	}
}

// heardFrom notes that an instance speaks. If it is none of those that were silent, the network is well,
// and the leader is among them.
func (t *trouble) heardFrom(instance uint64, cause lossCause) {
	if t.well = 0; cause == noLeader {
		if !slices.Contains(t.silent, instance) && !slices.Contains(t.silent, 0) {
			t.others()
		}
		t.well = instance
	}
	t.silent, t.streak = t.silent[:0], 0
}

// others notes that those that were silent are not all instances: one of them should have led.
func (t *trouble) others() {
	t.spent[unreachable] -= t.streak
	t.spent[noLeader] += t.streak
	t.streak = 0
}

// end accounts for the time until the end of the session.
func (t *trouble) end(e *Engine, s *Session) {
	a := s.attachment
	switch x := s.attach; {
	case x != nil && x.state == Sent && x.on != nil:
		t.paused(e, x.sent)
		heard := heardOn(e, &x.Request, x.on)
		if heard > x.sent { // it reads what the instance sends, which has not answered this
			heard = e.now
		}
		t.add(e, x.on.instance, heard, unreachable, false)
	case a != nil:
		heard := a.conn.heard
		if a.conn.keepAlive.unheard <= heard {
			heard = e.now
		}
		t.add(e, a.conn.instance, heard, unreachable, false)
	case len(t.steps) > 0:
		x := &t.steps[len(t.steps)-1]
		t.add(e, x.instance, 0, x.cause, false)
	default:
		t.add(e, 0, 0, unreachable, false)
	}
	if t.well != 0 {
		t.others()
	}
}

// lostBy is the Loss of a session or a lease for a cause that the server said.
func lostBy(e *Engine, s *Session, cause lossCause, err error) *Loss {
	x := lossCauses[cause]
	l := &Loss{Cause: x.name, Advice: x.advice, err: err}
	if s.machine != nil {
		t := s.trouble
		if t == nil || t.renewed < s.renewedAt() { // it was well
			t = newTrouble(e, s)
		}
		l.Since, l.Steps = e.now-s.renewedAt(), t.lines(e)
	}
	return l
}

// notRenewed is why a session ends that was not renewed, or that a server says to be gone without a
// better reason: err. What lasted longest in the time since the last renewal is the cause, if all that
// is known explains half of the time that is left when the next renewal is due. That the process did
// not run has to explain it alone.
func notRenewed(e *Engine, s *Session, err error) *Loss {
	t := accountOf(e, s)
	t.end(e, s)
	timeout := s.machine.Timeout()
	window := sessionstate.Window(timeout, s.Grace)
	least := (window - s.period(timeout)) / 2
	still, asleep := e.stalls.stood(t.renewed, e.now)
	cause, d, all := unexplained, time.Duration(0), still+asleep
	for c, spent := range t.spent {
		if all += spent; spent > d {
			cause, d = lossCause(c), spent
		}
	}
	if max(still, asleep) >= max(least, d) {
		if cause, d = stoodStill, still; asleep > still {
			cause, d = slept, asleep
		}
	}
	if all < least {
		cause = unexplained
	}
	l := lostBy(e, s, cause, err)
	if s.attach != nil {
		l.last = s.attach.last
	}
	if cause == unexplained {
		return l
	}
	l.Stood, l.what = d, t.words(e, cause, d)
	switch err := t.example(refused); {
	case cause != refused:
	case errors.Is(err, ErrOtherCluster):
		l.Advice = "restart the program if its cluster was restored from a backup, or open another client"
	case errors.Is(err, ErrHandshake):
		l.Advice = "check the certificates, and the addresses of the instances"
	}
	if cause >= stoodStill {
		enough := (max(d*10/6, timeout) + time.Second).Truncate(time.Second) // six tenths are left when a renewal is due
		l.Advice = fmt.Sprintf("%s, and the session's timeout is %s: "+l.Advice, l.what, timeout, enough)
	}
	return l
}

// words are the cause as a sentence.
func (t *trouble) words(e *Engine, cause lossCause, d time.Duration) (text string) {
	switch cause {
	case stoodStill:
		return "this process did not run for " + seconds(d)
	case slept:
		return "this machine slept for " + seconds(d)
	case unreachable:
		text = "no instance answered for " + seconds(d)
		others := func(x lossStep) bool { return x.cause == unreachable && x.instance != t.by }
		if one := addressOf(e, "", t.by); one != "" && !slices.ContainsFunc(t.steps, others) { // none was asked
			text = one + " did not answer for " + seconds(d)
		}
	case noLeader:
		text = "no leader served it for " + seconds(d)
	case answeredLate:
		text = "instances answered, but did not renew it for " + seconds(d)
	case refused:
		text = "it was refused for " + seconds(d)
	case overloaded:
		text = "a limit refused it for " + seconds(d)
	}
	if err := t.example(cause); err != nil {
		return text + " (" + plainly(err) + ")"
	}
	if n := len(t.steps); n > 0 && cause == noLeader {
		x := t.steps[n-1]
		return fmt.Sprintf("%s: %s did not answer (%s), and others do not lead", text, addressOf(e, "", x.instance), plainly(x.err))
	}
	return text
}

// example is the latest error of a cause; nil: none is known.
func (t *trouble) example(cause lossCause) error {
	for _, x := range slices.Backward(t.steps) {
		if x.cause == cause {
			return x.err
		}
	}
	return nil
}

// plainly is an error without words that the cause says, which for refusals would be wrong.
func plainly(err error) string { return strings.TrimPrefix(err.Error(), ErrUnreachable.Error()+": ") }

// seconds is a time as people read it.
func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// lines are the steps of a Loss, the oldest first. The first is the last renewal.
func (t *trouble) lines(e *Engine) []string {
	type line struct {
		at   time.Duration
		text string
	}
	list := []line{{t.renewed, "renewed" + addressOf(e, " by ", t.by)}}
	for _, x := range t.steps {
		text := addressOf(e, "", x.instance)
		if text != "" {
			text += ": "
		}
		if text += plainly(x.err); x.times > 1 {
			text += fmt.Sprintf(" (%d times)", x.times)
		}
		list = append(list, line{x.at, text})
	}
	if e.stalls != nil {
		for _, x := range e.stalls.list {
			switch {
			case x.to <= t.renewed:
			case x.ahead != 0:
				list = append(list, line{x.to, "the time of day ran ahead by " + seconds(x.ahead) +
					": somebody set it, or the machine was paused"})
			case x.asleep():
				list = append(list, line{x.to, "the machine woke after " + seconds(x.to-x.from)})
			default:
				list = append(list, line{x.to, "the process ran again after " + seconds(x.to-x.from)})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	if more := len(list) - maxSteps; more > 0 {
		list = slices.Delete(list, 1, 1+more)
	}
	texts := make([]string, len(list))
	for i, x := range list {
		texts[i] = seconds(e.now-x.at) + " before: " + x.text
	}
	return texts
}

// addressOf is the address of an instance behind a word; empty: it is not known.
func addressOf(e *Engine, before string, instance uint64) string {
	if t := e.routes.table; t != nil && t.addresses[instance] != "" {
		return before + t.addresses[instance]
	}
	return ""
}
