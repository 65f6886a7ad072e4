package process

import (
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Messages are typed: requests are of type Q, replies of type A. The methods are those of Round and
// Request, with values in place of bytes.
//
//	var votes = process.NewMessages(process.JSON[Question](), process.JSON[Vote]())
//
// All members must use the same codecs. A request that its receiver cannot decode, or a reply that
// cannot be encoded, is answered with an error, ErrUnread, because sending it again would not help.
// After an error of the receiver's handler the message is sent again.
type Messages[Q, A any] struct {
	requests Codec[Q]
	replies  Codec[A]
}

// NewMessages returns messages with these codecs.
func NewMessages[Q, A any](requests Codec[Q], replies Codec[A]) Messages[Q, A] {
	return Messages[Q, A]{requests, replies}
}

var (
	// ErrCodec: a value cannot be encoded or decoded.
	ErrCodec = errors.New("codec failed")
	// ErrUnread: the receiver could not decode a typed message, or not encode its reply. The text
	// says why.
	ErrUnread = errors.New("receiver cannot answer")
)

// The first byte of a typed reply.
const (
	replyValue = 0 // a value follows
	replyError = 1 // text follows: why there is none
)

// Reply is a typed answer and its sender. Value is invalid if Err is set: ErrUnread, ErrCodec.
type Reply[A any] struct {
	From  uint64 // session
	Value A
	Err   error
}

// Replies is Callback for typed answers.
type Replies[A any] struct {
	Answered func([]Reply[A])
	GivenUp  func([]Reply[A])
	Timeout  time.Duration
}

// Broadcast is Round.Broadcast. Errors, without a call: ErrCodec, and those of Round.Broadcast.
func (m Messages[Q, A]) Broadcast(r *Round, v Q, filter func(Member) bool, c Replies[A]) error {
	return m.BroadcastIf(r, nil, v, filter, c)
}

// BroadcastIf is Round.BroadcastIf. Errors, without a call: ErrCodec, and those of
// Round.BroadcastIf.
func (m Messages[Q, A]) BroadcastIf(
	r *Round, condition func(*Round) bool, v Q, filter func(Member) bool, c Replies[A],
) error {
	payload, err := encode(m.requests, v, protocol.MaxProcessPayload)
	if err != nil {
		return r.about(err)
	}
	return r.BroadcastIf(condition, payload, filter,
		Callback{Answered: m.decodeReplies(c.Answered), GivenUp: m.decodeReplies(c.GivenUp), Timeout: c.Timeout})
}

// Request is Round.Request. answered gets ErrUnread or ErrCodec where there is no value. Errors,
// without a call: ErrCodec, and those of Round.Request.
func (m Messages[Q, A]) Request(r *Round, to uint64, v Q, answered func(A, error), givenUp func()) error {
	payload, err := encode(m.requests, v, protocol.MaxProcessPayload)
	if err != nil {
		return r.about(err)
	}
	return r.Request(to, payload, func(b []byte) {
		if answered != nil {
			answered(m.decodeReply(b))
		}
	}, givenUp)
}

// Handle is for Handler.Process: it decodes the request, and replies with the result of f. An error
// of f is returned, and nothing is replied. A request that cannot be decoded is answered by itself.
func (m Messages[Q, A]) Handle(q *Request, f func(v Q) (A, error)) error {
	v, err := m.Read(q)
	if err != nil {
		return nil // it was answered
	}
	a, err := f(v)
	if err != nil {
		return err
	}
	return m.Reply(q, a)
}

// Read is the request's value, for a reply that comes later. If it cannot be decoded, the sender
// has been told, and it must not be answered again. Errors: ErrCodec.
func (m Messages[Q, A]) Read(q *Request) (Q, error) {
	v, err := decode(m.requests, q.payload)
	if err != nil {
		return v, errors.Join(err, q.replyUnreadable(err))
	}
	return v, nil
}

// Reply is Request.Reply. If the value cannot be encoded or is too large, the sender gets
// ErrUnread. Errors: ErrCodec, and those of Request.Reply.
func (m Messages[Q, A]) Reply(q *Request, v A) error {
	b, err := encode(m.replies, v, protocol.MaxProcessPayload-1)
	if err != nil {
		return errors.Join(err, q.replyUnreadable(err))
	}
	return q.Reply(append([]byte{replyValue}, b...))
}

// replyUnreadable tells the sender of a typed message that it gets no value.
func (q *Request) replyUnreadable(why error) error {
	text := why.Error()
	return q.Reply(append([]byte{replyError}, text[:min(len(text), protocol.MaxProcessText)]...))
}

func (m Messages[Q, A]) decodeReplies(f func([]Reply[A])) func([]Answer) {
	if f == nil {
		return nil
	}
	return func(answers []Answer) {
		list := make([]Reply[A], len(answers))
		for i, a := range answers {
			list[i].From = a.From
			list[i].Value, list[i].Err = m.decodeReply(a.Payload)
		}
		f(list)
	}
}

func (m Messages[Q, A]) decodeReply(b []byte) (v A, err error) {
	switch {
	case len(b) == 0 || b[0] > replyError:
		return v, fmt.Errorf("%w: it is no typed reply; do all members use the same messages?", ErrCodec)
	case b[0] == replyError:
		return v, fmt.Errorf("%w: %q", ErrUnread, b[1:])
	}
	return decode(m.replies, b[1:])
}

// about puts an error of a message in its place.
func (r *Round) about(err error) error {
	return fmt.Errorf("message in round %d of process %q: %w", r.r.Epoch, r.p.name, err)
}
