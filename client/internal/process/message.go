package process

import (
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

func (r *round) ask(number uint64) *ask {
	for _, a := range r.asks {
		if a.number == number {
			return a
		}
	}
	return nil
}

// Ask sends a message to members of the round. JobAnswered follows when all have answered, or JobGivenUp when the round is over before, or already. When the
// membership is over nothing runs any more: ErrOver.
func (m *Machine) Ask(epoch uint64, to []uint64, payload []byte) (number uint64, err error) {
	r := m.round
	switch {
	case len(payload) > protocol.MaxProcessPayload:
		return 0, ErrTooLarge
	case m.ended != nil:
		return 0, ErrOver
	case len(to) == 0:
		return 0, ErrNoReceiver
	case r == nil || r.Epoch != epoch || r.over || r.failed:
		return m.askedLate(epoch), nil
	}
	for i, s := range to {
		if r.Member(s) == nil || slices.Contains(to[:i], s) {
			return 0, ErrNoReceiver
		}
	}
	m.number++
	a := &ask{number: m.number, payload: payload, missing: slices.Clone(to)}
	r.asks = append(r.asks, a)
	a.duty = m.owe(Send{Kind: protocol.KindProcessRequest, Epoch: epoch, Number: a.number, Payload: payload})
	return a.number, nil
}

// askedLate gives up a message of a round that is over, behind the round's end.
func (m *Machine) askedLate(epoch uint64) (number uint64) {
	m.number++
	if r := m.round; r != nil && r.Epoch == epoch && !r.settling {
		r.asks = append(r.asks, &ask{number: m.number})
		return m.number
	}
	i := 0
	for j := range m.jobs {
		if o := m.jobs[j].Round; o != nil && o.Epoch == epoch {
			i = j + 1
		}
	}
	m.jobs = slices.Insert(m.jobs, i, Job{Kind: JobGivenUp, Round: &Round{Epoch: epoch}, Number: m.number})
	return m.number
}

// GiveUp ends a message of this member that still lacks answers: JobGivenUp follows with those that came.
func (m *Machine) GiveUp(number uint64) { m.giveUp(number) }

// giveUp ends a message that the server will never take, or that nobody waits for.
func (m *Machine) giveUp(number uint64) {
	r := m.round
	if r == nil || r.over {
		return
	}
	if a := r.ask(number); a != nil {
		if a.duty != nil {
			m.drop(a.duty)
		}
		r.asks = slices.DeleteFunc(r.asks, func(b *ask) bool { return a == b })
		m.jobs = append(m.jobs, Job{Kind: JobGivenUp, Round: &r.Round, Number: number, Answers: a.answers, of: r})
	}
}

// Letter takes in a message, or the answer to one.
func (m *Machine) Letter(now time.Duration, l *protocol.ProcessMessage) {
	r := m.round
	if m.ended != nil || r == nil || r.Epoch != l.Epoch || r.over || r.failed || !r.prepared {
		return // it comes again if it counts
	}
	switch l.Kind {
	case protocol.MessageRequest:
		m.asked(r, l)
	case protocol.MessageReply, protocol.MessageRefused:
		a := r.ask(l.Number)
		if a == nil {
			return
		}
		i := slices.Index(a.missing, l.From)
		if i < 0 {
			return
		}
		if l.Kind == protocol.MessageRefused {
			if !a.duty.flying {
				m.put(now, a.duty)
			}
			return
		}
		a.missing = slices.Delete(a.missing, i, i+1)
		a.answers = append(a.answers, Answer{From: l.From, Payload: l.Payload})
		if len(a.missing) == 0 {
			r.asks = slices.DeleteFunc(r.asks, func(b *ask) bool { return a == b })
			m.drop(a.duty)
			m.jobs = append(m.jobs, Job{Kind: JobAnswered, Round: &r.Round, Number: a.number, Answers: a.answers, of: r})
		}
	}
}

// asked takes in a message of another member: it runs once, and a copy of it gets the reply that is remembered.
func (m *Machine) asked(r *round, l *protocol.ProcessMessage) {
	s := r.senders[l.From]
	if s == nil {
		s = &sender{handled: make(map[uint64]*handled)}
		r.senders[l.From] = s
	}
	if l.Low > s.low {
		s.low = l.Low
		for n := range s.handled { // forgets each alike: the order does not matter
			if n < s.low {
				delete(s.handled, n)
			}
		}
	}
	if l.Number < s.low {
		return // a late copy: its sender has its answer
	}
	if h := s.handled[l.Number]; h != nil {
		if h.replied {
			m.reply(r, l.From, l.Number, h.payload, false)
		}
		return
	}
	s.handled[l.Number] = &handled{}
	m.jobs = append(m.jobs, Job{Kind: JobProcess, Round: &r.Round, From: l.From, Number: l.Number, Payload: l.Payload, of: r})
}

// reply sends an answer, unless it is on its way.
func (m *Machine) reply(r *round, to, number uint64, payload []byte, refused bool) {
	for _, d := range m.duties {
		if d.Kind == protocol.KindProcessReply && d.Epoch == r.Epoch && d.To[0] == to && d.Number == number && d.Refused == refused {
			return
		}
	}
	m.owe(Send{Kind: protocol.KindProcessReply, Epoch: r.Epoch, To: []uint64{to}, Number: number, Payload: payload, Refused: refused})
}

// Respond answers a message that runs or ran, once.
func (m *Machine) Respond(epoch, from, number uint64, payload []byte) error {
	r := m.round
	switch {
	case len(payload) > protocol.MaxProcessPayload:
		return ErrTooLarge
	case m.ended != nil || r == nil || r.Epoch != epoch || r.over:
		return ErrOver
	}
	s := r.senders[from]
	if s == nil || s.handled[number] == nil {
		return ErrNotAsked
	}
	h := s.handled[number]
	if h.replied {
		return ErrReplied
	}
	h.replied, h.payload = true, payload
	m.reply(r, from, number, payload, false)
	return nil
}

// processed is the end of JobProcess. A reply that was given stands, whatever came after it.
func (m *Machine) processed(j Job, err error) {
	r := j.of
	if r.over || r.failed {
		return
	}
	if err == nil {
		r.failures = 0
		return
	}
	if h := r.senders[j.From].handled[j.Number]; h != nil && !h.replied {
		delete(r.senders[j.From].handled, j.Number) // a copy runs again
		m.reply(r, j.From, j.Number, nil, true)
	}
	r.failures++
	if most := m.options.MaxProcessFailures; most > 0 && r.failures >= most {
		m.fail(r, err)
	}
}
