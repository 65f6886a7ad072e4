package relay

import (
	"fmt"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Request is a message from one member to others. Number is given by the sender, from 1, rising,
// and never again for something else in this session; a request is sent again under its own. Low is
// the lowest number the sender has not had all answers to, or has not given up.
type Request struct {
	From    uint64
	Epoch   uint64
	Number  uint64
	Low     uint64
	To      []uint64 // receivers, the sender itself perhaps among them; none twice
	Payload []byte   // kept until it is answered

	// Admit, if not nil, returns an error if more bytes beside those held are too much for the
	// holder. It is asked when the relay has room, and has dropped the requests that the sender
	// gave up.
	Admit func(held, more int) error
}

// Reply answers a request. Refused: the handler failed, and the request must be sent again.
type Reply struct {
	From    uint64 // the receiver of the request
	To      uint64 // the sender of the request
	Epoch   uint64
	Number  uint64
	Refused bool
	Payload []byte
}

// Request takes the message for all its receivers, or for none. A request that is sent again is
// delivered again while it is unanswered, without counting twice: senders back off, and receivers
// know what they execute. UNAVAILABLE and OVERLOADED ask the sender to send it again;
// ABORTED: the round is over; PRECONDITION_FAILED: a receiver is no member of the round (any more).
func (r *Relay) Request(q Request, out *Out) error {
	from, err := r.roundMember(q.From, q.Epoch)
	if err != nil {
		return err
	}
	switch {
	case q.Number == 0 || q.Low == 0 || q.Low > q.Number:
		return protocol.Errorf(
			protocol.StatusBadRequest,
			"number %d and low %d of the message do not fit; numbers start from 1, and low is not above",
			q.Number, q.Low,
		)
	case len(q.To) == 0 || len(q.To) > len(r.members):
		return protocol.Errorf(protocol.StatusBadRequest, "message has %d receivers; the round has %d members",
			len(q.To), len(r.members))
	}
	if err := r.checkPayload(q.Payload); err != nil {
		return err
	}
	sorted := slices.Clone(q.To)
	slices.Sort(sorted)
	for i, to := range sorted {
		if i > 0 && to == sorted[i-1] {
			return protocol.Errorf(protocol.StatusBadRequest, "a receiver is named twice; name each once")
		}
	}
	if q.Number < from.low {
		// a late copy of a request with all its answers sent: receivers may have forgotten that
		// they executed it
		r.counters.Late++
		return nil
	}
	if q.Low > from.low {
		from.low = q.Low
		for e := range from.outbox.all() {
			if e.number < from.low {
				r.drop(e)
			}
		}
	}
	if err := r.checkLimits(from, &q); err != nil {
		return err
	}
	for _, session := range q.To {
		key := messageKey{q.From, q.Number, session}
		if former := r.pending[key]; former != nil { // its reply may have been lost on the way here
			r.counters.Repeated++
			r.deliver(former, out)
			continue
		}
		e := &pendingMessage{messageKey: key, low: q.Low, payload: q.Payload, sender: from, receiver: r.member(session)}
		r.keep(e)
		r.counters.Requests++
		r.deliver(e, out)
	}
	return nil
}

// checkLimits checks receivers and limits for all receivers that do not have the message already.
func (r *Relay) checkLimits(from *member, q *Request) error {
	entries, bytes := len(r.pending), r.bytes
	for _, session := range q.To {
		to := r.member(session)
		if to == nil {
			return protocol.Errorf(protocol.StatusPreconditionFailed,
				"receiver %d is not a member of the round of epoch %d", session, r.epoch)
		}
		if r.pending[messageKey{q.From, q.Number, session}] != nil {
			continue
		}
		entries++
		bytes += len(q.Payload)
		full := ""
		switch l := &r.limits; {
		case from.unanswered[session] >= l.Pair:
			full = fmt.Sprintf("receiver %d has %d unanswered messages of this sender, and at most %d are kept",
				session, from.unanswered[session], l.Pair)
		case to.bytes+len(q.Payload) > l.Receiver:
			full = fmt.Sprintf("receiver %d has %d bytes of unanswered messages, and at most %d are kept",
				session, to.bytes, l.Receiver)
		case entries > l.Entries:
			full = fmt.Sprintf("the round has %d unanswered messages, the most that are kept", l.Entries)
		case bytes > l.Bytes:
			full = fmt.Sprintf("the round has %d bytes of unanswered messages, and at most %d are kept",
				r.bytes, l.Bytes)
		}
		if full != "" {
			r.counters.Overflows++
			return protocol.Errorf(protocol.StatusOverloaded, "%s; send the message again later", full)
		}
	}
	if q.Admit == nil || bytes == r.bytes {
		return nil
	}
	err := q.Admit(r.bytes, bytes-r.bytes)
	if err != nil {
		r.counters.Overflows++
	}
	return err
}

func (r *Relay) deliver(e *pendingMessage, out *Out) {
	out.Deliveries = append(out.Deliveries, Delivery{
		Kind: KindRequest, To: e.to, From: e.from, Epoch: r.epoch, Number: e.number, Low: e.low, Payload: e.payload,
	})
}

// Reply passes the answer on, once. An answer to nothing that is pending is OK and dropped: the
// sender had one, or sends the request again.
func (r *Relay) Reply(a Reply, out *Out) error {
	if _, err := r.roundMember(a.From, a.Epoch); err != nil {
		return err
	}
	if err := r.checkPayload(a.Payload); err != nil {
		return err
	}
	e := r.pending[messageKey{a.To, a.Number, a.From}]
	if e == nil {
		r.counters.Unknown++
		return nil
	}
	r.drop(e)
	d := Delivery{Kind: KindReply, To: a.To, From: a.From, Epoch: a.Epoch, Number: a.Number, Payload: a.Payload}
	if a.Refused {
		d.Kind = KindRefused
		r.counters.Refused++
	} else {
		r.counters.Replies++
	}
	out.Deliveries = append(out.Deliveries, d)
	return nil
}

// SessionAttached delivers again the session's unanswered requests, in order of arrival: its
// connection is a new one.
func (r *Relay) SessionAttached(session uint64, out *Out) {
	m := r.member(session)
	if m == nil {
		return
	}
	for e := range m.inbox.all() {
		r.counters.Redelivered++
		r.deliver(e, out)
	}
}
