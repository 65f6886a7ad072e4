package membership

import (
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

func (r *round) request(number uint64) *sentRequest {
	for _, a := range r.requests {
		if a.number == number {
			return a
		}
	}
	return nil
}

// Request sends a message to members of the round. JobAnswered follows when all have answered, or
// JobGivenUp when the round is over before, or already. After the end of the membership nothing
// runs any more: ErrRoundOver.
func (m *Machine) Request(epoch uint64, to []uint64, payload []byte) (number uint64, err error) {
	r := m.round
	switch {
	case len(payload) > protocol.MaxProcessPayload:
		return 0, ErrTooLarge
	case m.ended != nil:
		return 0, ErrRoundOver
	case len(to) == 0:
		return 0, ErrNoReceiver
	case r == nil || r.Epoch != epoch || r.over || r.failed:
		return m.requestLate(epoch), nil
	}
	for i, s := range to {
		if r.Member(s) == nil || slices.Contains(to[:i], s) {
			return 0, ErrNoReceiver
		}
	}
	m.lastMessage++
	a := &sentRequest{number: m.lastMessage, missing: slices.Clone(to)}
	r.requests = append(r.requests, a)
	a.send = m.addSend(Send{Kind: protocol.KindProcessRequest, Epoch: epoch, Number: a.number, Payload: payload})
	return a.number, nil
}

// requestLate gives up a message of a round that is over, behind the round's end.
func (m *Machine) requestLate(epoch uint64) (number uint64) {
	m.lastMessage++
	if r := m.round; r != nil && r.Epoch == epoch && !r.endQueued {
		r.requests = append(r.requests, &sentRequest{number: m.lastMessage})
		return m.lastMessage
	}
	i := 0
	for j := range m.jobs {
		if o := m.jobs[j].Round; o != nil && o.Epoch == epoch {
			i = j + 1
		}
	}
	m.jobs = slices.Insert(m.jobs, i, Job{Kind: JobGivenUp, Round: &Round{Epoch: epoch}, Number: m.lastMessage})
	return m.lastMessage
}

// GiveUp ends a message of this member that lacks answers: JobGivenUp follows with those that came.
func (m *Machine) GiveUp(number uint64) {
	r := m.round
	if r == nil || r.over {
		return
	}
	if a := r.request(number); a != nil {
		if a.send != nil {
			m.removeSend(a.send)
		}
		r.requests = slices.DeleteFunc(r.requests, func(b *sentRequest) bool { return a == b })
		m.jobs = append(m.jobs, Job{Kind: JobGivenUp, Round: &r.Round, Number: number, Answers: a.answers, round: r})
	}
}

// HandleMessage processes a message of another member, or the answer to one.
func (m *Machine) HandleMessage(now time.Duration, l *protocol.ProcessMessage) {
	r := m.round
	if m.ended != nil || r == nil || r.Epoch != l.Epoch || r.over || r.failed || !r.prepared {
		return // it comes again if it counts
	}
	switch l.Kind {
	case protocol.MessageRequest:
		m.handleRequest(r, l)
	case protocol.MessageReply, protocol.MessageRefused:
		a := r.request(l.Number)
		if a == nil {
			return
		}
		i := slices.Index(a.missing, l.From)
		if i < 0 {
			return
		}
		if l.Kind == protocol.MessageRefused {
			if !a.send.inFlight {
				m.scheduleRetry(now, a.send)
			}
			return
		}
		a.missing = slices.Delete(a.missing, i, i+1)
		a.answers = append(a.answers, Answer{From: l.From, Payload: l.Payload})
		if len(a.missing) == 0 {
			r.requests = slices.DeleteFunc(r.requests, func(b *sentRequest) bool { return a == b })
			m.removeSend(a.send)
			m.jobs = append(m.jobs, Job{Kind: JobAnswered, Round: &r.Round, Number: a.number,
				Answers: a.answers, round: r})
		}
	}
}

// handleRequest takes in a message of another member: it runs once, and a copy of it gets the reply
// that is remembered.
func (m *Machine) handleRequest(r *round, l *protocol.ProcessMessage) {
	s := r.senders[l.From]
	if s == nil {
		s = &messageSender{handled: make(map[uint64]*handledMessage)}
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
			m.sendReply(r, l.From, l.Number, h.payload, false)
		}
		return
	}
	s.handled[l.Number] = &handledMessage{}
	m.jobs = append(m.jobs, Job{Kind: JobProcess, Round: &r.Round, From: l.From, Number: l.Number,
		Payload: l.Payload, round: r})
}

// sendReply sends an answer, unless it is on its way.
func (m *Machine) sendReply(r *round, to, number uint64, payload []byte, refused bool) {
	for _, d := range m.pending {
		if d.Kind == protocol.KindProcessReply && d.Epoch == r.Epoch && d.To[0] == to &&
			d.Number == number && d.Refused == refused {
			return
		}
	}
	m.addSend(Send{Kind: protocol.KindProcessReply, Epoch: r.Epoch, To: []uint64{to}, Number: number,
		Payload: payload, Refused: refused})
}

// Reply answers a message that runs or ran, once.
func (m *Machine) Reply(epoch, from, number uint64, payload []byte) error {
	r := m.round
	switch {
	case len(payload) > protocol.MaxProcessPayload:
		return ErrTooLarge
	case m.ended != nil || r == nil || r.Epoch != epoch || r.over:
		return ErrRoundOver
	}
	s := r.senders[from]
	if s == nil || s.handled[number] == nil {
		return ErrRequestGone
	}
	h := s.handled[number]
	if h.replied {
		return ErrReplied
	}
	h.replied, h.payload = true, payload
	m.sendReply(r, from, number, payload, false)
	return nil
}

// processed is the end of JobProcess. A reply that was given stands, whatever came after it.
func (m *Machine) processed(j Job, err error) {
	r := j.round
	if r.over || r.failed {
		return
	}
	if err == nil {
		r.failures = 0
		return
	}
	if h := r.senders[j.From].handled[j.Number]; h != nil && !h.replied {
		delete(r.senders[j.From].handled, j.Number) // a copy runs again
		m.sendReply(r, j.From, j.Number, nil, true)
	}
	r.failures++
	if most := m.options.MaxProcessFailures; most > 0 && r.failures >= most {
		m.fail(r, err)
	}
}
