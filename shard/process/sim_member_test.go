package process

import (
	"slices"
	"strconv"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/process/relay"
)

// agent is what the SDK must be: one member, its handler, and what it repeats until it is answered.
type agent struct {
	session  uint64
	key      string
	dead     bool // its process was killed, or it knows that it is no member any more
	ended    bool // its session is gone
	attached bool
	paused   bool
	member   bool
	joined   bool  // the log has its join: before, the session's events are those of the program that had it
	queue    []any // Event or relay.Delivery

	epoch       uint64 // the highest seen
	open        bool   // prepared, and neither cancelled nor completed
	over        bool   // completed, cancelled or failed
	fulfilled   bool   // completed
	coordinates bool
	roster      []protocol.ProcessMember
	calls       []*call
	number      uint64
	missing     []uint64 // receivers that have not replied
	memory      map[[2]uint64]bool
	agreed      string
	agreedEpoch uint64

	prepares, cancels, completes int
}

type callKind int

const (
	callJoin callKind = iota
	callLeave
	callPrepared
	callFail
	callComplete
	callCompleted
)

type call struct {
	a      *agent
	kind   callKind
	epoch  uint64
	result string
	order  uint64 // of a join that the log has: the shard remembers the request
	done   bool   // answered
}

// agent is the last one that has, or had, the session.
func (w *simulation) agent(session uint64) *agent {
	for _, a := range slices.Backward(w.agents) {
		if a.session == session {
			return a
		}
	}
	return nil
}

func (w *simulation) join(key string) *agent {
	w.next++
	session := w.next*7919%100_003 + 1 // ids in no order
	a := &agent{session: session, key: key, attached: true, memory: map[[2]uint64]bool{}}
	w.agents = append(w.agents, a)
	a.call(callJoin, 0, "")
	return a
}

// restore is another program that restores the session of an agent, which was killed, and joins
// again.
func (w *simulation) restore(a *agent) {
	a.dead, a.ended, a.queue = true, true, nil
	b := &agent{session: a.session, key: a.key, attached: true, memory: map[[2]uint64]bool{}}
	w.agents = append(w.agents, b)
	b.call(callJoin, 0, "")
	w.seen["restored in "+w.p.Phase().String()]++
}

func (a *agent) call(kind callKind, epoch uint64, result string) {
	for _, c := range a.calls {
		if c.kind == kind && c.epoch == epoch && !c.done {
			return
		}
	}
	a.calls = append(a.calls, &call{a: a, kind: kind, epoch: epoch, result: result})
}

// close ends an open round: completed if the server completed it, else cancelled.
func (w *simulation) close(a *agent, completedEpoch uint64, notified bool) {
	if !a.open {
		return
	}
	if completedEpoch == a.epoch {
		w.complete(a, a.agreed)
		return
	}
	a.open, a.over = false, true
	a.cancels++
	if notified && !a.ended {
		w.cancelled[a.epoch] = true
	}
}

func (w *simulation) complete(a *agent, result string) {
	if !a.open {
		w.fatal("%d completes %d, which is not open", a.session, a.epoch)
	}
	a.open, a.over, a.fulfilled = false, true, true
	a.completes++
	a.agreed, a.agreedEpoch = result, a.epoch
	w.completed[a.epoch] = true
}

func (w *simulation) fails() bool { return !w.noFaults && w.chance(w.handlerFailRate) }

// begin is what an agent does with a round that it did not know.
func (w *simulation) begin(a *agent, e *MemberEvent) bool {
	w.close(a, e.CompletedEpoch, true)
	if e.Token < e.Epoch {
		w.fatal("token %d is below epoch %d", e.Token, e.Epoch)
	}
	a.epoch, a.open, a.over, a.fulfilled, a.coordinates, a.roster, a.missing =
		e.Epoch, false, false, false, false, e.Members, nil
	a.calls = slices.DeleteFunc(a.calls, func(c *call) bool { return c.epoch > 0 })
	clear(a.memory)
	if w.fails() {
		return false
	}
	a.open = true
	a.prepares++
	if e.Kind == EventPrepare {
		w.tokens[a.key] = max(w.tokens[a.key], e.Token)
	}
	return true
}

func (w *simulation) handle(a *agent) {
	item := a.queue[0]
	a.queue = a.queue[1:]
	if d, ok := item.(relay.Delivery); ok {
		w.handleMessage(a, &d)
		return
	}
	e := item.(MemberEvent)
	if e.Kind != EventRemoved && e.Epoch < a.epoch {
		return
	}
	switch e.Kind {
	case EventPrepare:
		switch {
		case e.Epoch > a.epoch:
			if w.begin(a, &e) {
				a.call(callPrepared, e.Epoch, "")
			} else {
				a.over = true
				a.call(callFail, e.Epoch, "")
			}
		case a.open:
			a.call(callPrepared, e.Epoch, "")
		}
	case EventCoordinate:
		if e.Epoch != a.epoch || !a.open || a.coordinates {
			return
		}
		a.coordinates = true
		if s, ok := w.coordinators[e.Epoch]; ok && s != a.session {
			w.fatal("epoch %d has coordinators %d and %d", e.Epoch, s, a.session)
		}
		w.coordinators[e.Epoch] = a.session
		if w.fails() {
			a.call(callFail, e.Epoch, "")
			return
		}
		a.number++
		for _, m := range a.roster {
			a.missing = append(a.missing, m.Session)
		}
	case EventCancel:
		if e.Epoch == a.epoch {
			w.close(a, e.CompletedEpoch, true)
			a.over = true
		}
	case EventComplete:
		switch {
		case e.Epoch == a.epoch && a.open:
			w.complete(a, string(e.Result))
			a.call(callCompleted, e.Epoch, "")
		case e.Epoch == a.epoch && a.fulfilled:
			a.call(callCompleted, e.Epoch, "")
		default:
			w.fatal("%d is told to complete %d, and has %+v", a.session, e.Epoch, a)
		}
	case EventResume:
		if e.Epoch > a.epoch && a.key != "" && w.p.JoinOrder(a.session) != 0 { // else it was replaced meanwhile
			if e.Token <= w.tokens[a.key] {
				w.fatal("%d returns with token %d, and %d was given to another session of its key",
					a.session, e.Token, w.tokens[a.key])
			}
		}
		if e.Epoch > a.epoch && !w.begin(a, &e) {
			a.epoch-- // told again
			return
		}
		if a.open {
			w.complete(a, string(e.Result))
			w.tokens[a.key] = max(w.tokens[a.key], e.Token)
		}
		a.call(callCompleted, e.Epoch, "")
		w.seen["resumed"]++
	case EventRemoved:
		w.close(a, e.CompletedEpoch, true)
		a.dead = true
	}
}

func (w *simulation) handleMessage(a *agent, d *relay.Delivery) {
	if d.Epoch != a.epoch {
		return
	}
	switch d.Kind {
	case relay.KindRequest:
		key := [2]uint64{d.From, d.Number}
		refused := false
		switch {
		case a.memory[key]: // the remembered reply
			w.seen["remembered"]++
		case !a.open:
			return
		case w.fails():
			refused = true
		default:
			a.memory[key] = true
			a.agreed = string(d.Payload)
			w.executed[[4]uint64{a.session, d.Epoch, d.From, d.Number}]++
		}
		if a.paused || w.fails() {
			return // lost
		}
		if err := w.r.Reply(relay.Reply{From: a.session, To: d.From, Epoch: d.Epoch,
			Number: d.Number, Refused: refused}, &w.relayOut); err == nil {
			w.deliverMessages()
		}
	case relay.KindReply:
		if i := slices.Index(a.missing, d.From); i >= 0 && a.open {
			a.missing = slices.Delete(a.missing, i, i+1)
			if len(a.missing) == 0 {
				a.call(callComplete, a.epoch, strconv.FormatUint(a.epoch, 10))
			}
		}
	}
}

// repeat sends what is unanswered.
func (w *simulation) repeat(a *agent) {
	for _, c := range a.calls {
		if !c.done && len(w.pool) < 500 {
			w.pool = append(w.pool, c)
		}
	}
	a.calls = slices.DeleteFunc(a.calls, func(c *call) bool { return c.done })
	if a.open && a.coordinates && len(a.missing) > 0 {
		q := relay.Request{
			From: a.session, Epoch: a.epoch, Number: a.number, Low: a.number, To: slices.Clone(a.missing),
			Payload: []byte(strconv.FormatUint(a.epoch, 10)),
		}
		if err := w.r.Request(q, &w.relayOut); err == nil {
			w.deliverMessages()
		}
	}
}

func (w *simulation) attach(a *agent) {
	if a.ended || a.dead {
		return
	}
	a.attached, a.queue = true, nil
	w.out.Reset()
	if !w.p.Resend(a.session, &w.out) && a.member { // it is no member any more
		w.close(a, 0, false)
		a.dead = true
	}
	w.deliver()
	w.r.SessionAttached(a.session, &w.relayOut)
	w.deliverMessages()
}

// end is the session's: the log says so.
func (w *simulation) end(a *agent) {
	if !a.ended {
		a.ended, a.attached = true, false
		w.seen["ended in "+w.p.Phase().String()]++
		if w.coordinators[w.p.Epoch()] == a.session || w.p.round.session == a.session {
			w.seen["coordinator ended in "+w.p.Phase().String()]++
		}
		w.apply(func(p *Process, at Now, out *Out) { p.SessionEnded(at, a.session, out) })
	}
}
