package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	machine "github.com/signalbox-dev/signalbox/client/internal/membership"
	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Member is a member of a round: Session, Order of joining, Key, Identity, Data, Weight.
type Member = protocol.ProcessMember

// Answer is a reply and its sender. From is a session.
type Answer = machine.Answer

// Round is one round at one member. All its callbacks get the same Round. Its methods may be called
// from any goroutine.
type Round struct {
	p          *Membership
	r          *machine.Round
	ctx        context.Context
	cancel     context.CancelCauseFunc
	attachment atomic.Value
}

// Context ends when the round is known to be over, also while a callback runs. Its cause is
// ErrRoundOver.
func (r *Round) Context() context.Context { return r.ctx }

// Membership is a context that ends when the membership is known to be over: by Leave, an operator,
// another session with the member's key, or the end of the session, before the server can give the
// member's place away. It goes on when the round ends; use it for work between rounds.
func (r *Round) Membership() context.Context { return r.p.lifetime }

// Epoch is the number of the round in its process; it rises.
func (r *Round) Epoch() uint64 { return r.r.Epoch }

// Token is the fencing token for effects outside in this round. It is the epoch, or higher.
func (r *Round) Token() uint64 { return r.r.Token }

// Topology is the version of the list of members.
func (r *Round) Topology() uint64 { return r.r.Topology }

// Attempt is how many rounds of this topology failed before.
func (r *Round) Attempt() uint64 { return r.r.Attempt }

// Resumed reports whether this member came back, by its key, to a round that the others had
// completed: Result is what they agreed on.
func (r *Round) Resumed() bool { return r.r.Resumed }

// Size is the number of members.
func (r *Round) Size() int { return len(r.r.Members) }

// Member is the member with this session, if there is one.
func (r *Round) Member(session uint64) (Member, bool) {
	if m := r.r.Member(session); m != nil {
		return *m, true
	}
	return Member{}, false
}

// Members lists the members in order of joining. The caller owns the list.
func (r *Round) Members() []Member { return slices.Clone(r.r.Members) }

// Self is this member.
func (r *Round) Self() Member { return *r.r.Member(r.p.session) }

// Coordinator is the session of the member that coordinates.
func (r *Round) Coordinator() uint64 { return r.r.Coordinator }

// IsCoordinator reports whether this member coordinates.
func (r *Round) IsCoordinator() bool { return r.r.Coordinator == r.p.session }

// Result is what the coordinator passed to Complete. It is nil if the member learned from a newer
// round that this one was complete.
func (r *Round) Result() []byte { return r.r.Result }

// Attachment is the last value given to SetAttachment in this round, or nil.
func (r *Round) Attachment() any {
	if b, ok := r.attachment.Load().(attachmentBox); ok {
		return b.v
	}
	return nil
}

// attachmentBox lets values of different types, and nil, be stored.
type attachmentBox struct{ v any }

// SetAttachment keeps a value for the other callbacks of the round.
func (r *Round) SetAttachment(v any) { r.attachment.Store(attachmentBox{v}) }

// Complete completes the round, for the coordinator, with a result of at most 32 KiB. A repeated
// call does nothing. Errors: ErrRoundOver, ErrNotCoordinator, ErrNotReady, ErrTooLarge.
func (r *Round) Complete(result []byte) error {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	err := r.p.m.Complete(r.r.Epoch, slices.Clone(result))
	r.p.act()
	if err != nil {
		return fmt.Errorf("complete round %d of process %q: %w", r.r.Epoch, r.p.name, err)
	}
	return nil
}

// Fail reports, from any prepared member, that the round cannot be completed. It is tried again
// after a back-off, with a new epoch. Use it for failures after Prepare and Coordinate, which
// return errors. A round that is already complete stays complete. Errors: ErrRoundOver,
// ErrNotPrepared.
func (r *Round) Fail(why error) error {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	why = cmp.Or(why, errors.New("no reason was given"))
	err := r.p.m.Fail(r.r.Epoch, why)
	r.p.act()
	if err != nil {
		return fmt.Errorf("fail round %d of process %q: %w", r.r.Epoch, r.p.name, err)
	}
	return nil
}

// Callback receives the outcome of a broadcast, on the goroutine of the membership. Answered gets
// the answers of all receivers. GivenUp gets those that came, if the round is over before, or was
// when the message was sent. Exactly one of them is called, once. Either may be nil.
type Callback struct {
	Answered func([]Answer)
	GivenUp  func([]Answer)
	// Timeout gives the message up although the round goes on. Default 0: it waits as long as the
	// round. A negative one is ErrBadRequest. A receiver that has executed it by then has executed
	// it.
	Timeout time.Duration
}

// Broadcast sends a message to the members that filter accepts, this one included; nil accepts all.
// Without a receiver Answered is called at once, on the caller's goroutine. Errors, without a call
// of either function: ErrTooLarge, ErrBadRequest for a negative Timeout, ErrRoundOver after the end
// of the membership.
func (r *Round) Broadcast(payload []byte, filter func(Member) bool, c Callback) error {
	var err error
	if millis.Of("timeout", c.Timeout, &err); err != nil {
		return r.about(err)
	}
	var to []uint64
	for _, m := range r.r.Members {
		if filter == nil || filter(m) {
			to = append(to, m.Session)
		}
	}
	if len(to) == 0 {
		if c.Answered != nil {
			c.Answered(nil)
		}
		return nil
	}
	return r.send(payload, to, c)
}

// BroadcastIf is Broadcast if condition is nil or true for the round; otherwise there is no
// receiver. condition is called once, on the caller's goroutine.
func (r *Round) BroadcastIf(condition func(*Round) bool, payload []byte, filter func(Member) bool, c Callback) error {
	if condition != nil && !condition(r) {
		filter = func(Member) bool { return false }
	}
	return r.Broadcast(payload, filter, c)
}

// Request sends a message to one member. Errors, without a call of either function: ErrTooLarge,
// ErrNoReceiver, ErrRoundOver after the end of the membership. For a Timeout use Broadcast with a
// filter.
func (r *Round) Request(to uint64, payload []byte, answered func([]byte), givenUp func()) error {
	return r.send(payload, []uint64{to}, Callback{
		Answered: func(a []Answer) {
			if answered != nil {
				answered(a[0].Payload)
			}
		},
		GivenUp: func([]Answer) {
			if givenUp != nil {
				givenUp()
			}
		},
	})
}

func (r *Round) send(payload []byte, to []uint64, c Callback) error {
	p := r.p
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := p.m.Request(r.r.Epoch, to, slices.Clone(payload))
	if err != nil {
		return r.about(err)
	}
	k := &sentRequest{Callback: c}
	if c.Timeout > 0 {
		k.timer = time.AfterFunc(c.Timeout, func() { p.input(func(m *machine.Machine, _ time.Duration) { m.GiveUp(n) }) })
	}
	p.requests[n] = k
	p.stats.Asked++
	p.act()
	return nil
}

// Request is a message of another member, or of this one.
type Request struct {
	round   *Round
	from    uint64
	number  uint64
	payload []byte
}

// Round is the round of the message.
func (q *Request) Round() *Round { return q.round }

// From is the sender.
func (q *Request) From() Member { return *q.round.r.Member(q.from) }

// Payload returns the message's bytes. They must not be changed.
func (q *Request) Payload() []byte { return q.payload }

// Reply answers the message, once, from any goroutine. Errors: ErrReplied, ErrRoundOver,
// ErrRequestGone, ErrTooLarge.
func (q *Request) Reply(payload []byte) error {
	p := q.round.p
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.m.Reply(q.round.r.Epoch, q.from, q.number, slices.Clone(payload))
	p.act()
	if err != nil {
		return fmt.Errorf("reply in round %d of process %q: %w", q.round.r.Epoch, p.name, err)
	}
	return nil
}
