package process

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/access"
	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
	"github.com/signalbox-dev/signalbox/protocol"
)

// List lists the processes of the node whose name begins with prefix, in order of name. Of the
// options, After and MaxItems count. The sequence ends after its first error.
func List(ctx context.Context, n *client.Node, prefix string, opts ...client.ReadOption) iter.Seq2[Info, error] {
	return handle.Convert(handle.Processes(ctx, access.Node(n), prefix, access.ListLimits(opts)),
		func(p protocol.ProcessItem) Info {
			return Info{Name: string(p.Name), Phase: p.Phase, Epoch: p.Epoch, Topology: p.Topology,
				Coordinator: p.Coordinator, Members: int(p.NumMembers)}
		})
}

// Operator observes a process, and steps in, without being a member. Any number of goroutines may
// use it.
type Operator struct {
	transport operatorTransport
}

// operatorTransport is how an operator reaches the server. Tests have one of their own.
type operatorTransport interface {
	Name() string
	NodeID() uint64
	Request(ctx context.Context, kind protocol.Kind, m, reply protocol.Message) (repeated bool, err error)
	Watch(ctx context.Context) iter.Seq2[watchStep, error]
}

// object is a process as the operator's transport.
type object struct{ *handle.Object }

// Watch implements operatorTransport.
func (o object) Watch(ctx context.Context) iter.Seq2[watchStep, error] {
	req := &protocol.ProcessWatch{Node: o.NodeID(), Name: []byte(o.Name())}
	return handle.Watch(ctx, o.Object, protocol.KindProcessWatch, req,
		func() func(protocol.Header) (watchStep, core.Step, error) {
			return new(pageReader).read
		})
}

// NewOperator is an operator of the process with this name. It need not exist yet.
func NewOperator(n *client.Node, name string) *Operator {
	return &Operator{object{handle.Process(access.Node(n), nil, name)}}
}

// Describe reads the process with its members and the last rounds. It sees every change that was
// acknowledged before. Errors: ErrNotFound, ErrBadRequest for an illegal name, ErrForbidden.
func (o *Operator) Describe(ctx context.Context) (*Status, error) {
	m := &protocol.ProcessDescribe{
		Node: o.transport.NodeID(), Name: []byte(o.transport.Name()),
		Flags: protocol.WithProcessMembers | protocol.WithProcessHistory, Consistency: protocol.Strict,
	}
	for begun := 0; ; begun++ {
		m.Cursor = nil
		var s *Status
		var revision uint64
		torn := false
		for {
			var reply protocol.ProcessStatus
			if _, err := o.transport.Request(ctx, protocol.KindProcessDescribe, m, &reply); err != nil {
				return nil, err
			}
			if s == nil {
				s, revision = statusOf(&reply), reply.Revision
			} else {
				s.add(&reply)
			}
			torn = torn || revision != reply.Revision
			if len(reply.Cursor) == 0 || torn && begun < maxRereads {
				break
			}
			m.Cursor = reply.Cursor
		}
		if !torn || begun == maxRereads {
			return s, nil
		}
	}
}

// maxRereads is how often a status is begun again because the process changed between its pages.
// After that its members come from different moments.
const maxRereads = 5

// Force starts a new round although nothing changed: after the present one if that is decided, else
// in its place. reason, at most 256 bytes, is kept with the round that is given up. Absent members
// leave. It needs the right admin. Errors: ErrNotFound, ErrPreconditionFailed without members,
// ErrForbidden.
func (o *Operator) Force(ctx context.Context, reason string) error {
	m := &protocol.ProcessForceRound{Node: o.transport.NodeID(), Name: []byte(o.transport.Name()), Text: reason}
	return outcomeUnknown(o.transport.Request(ctx, protocol.KindProcessForceRound, m, &protocol.Empty{}))
}

// Evict ends the membership of a session, terminates its handler, and takes away the place that its
// key keeps. The session lives on, and its program may join again. It needs the right admin.
// Errors: ErrNotFound for a session that is not a member, ErrForbidden.
func (o *Operator) Evict(ctx context.Context, session uint64, reason string) error {
	m := &protocol.ProcessEvict{Node: o.transport.NodeID(), Name: []byte(o.transport.Name()),
		Session: session, Text: reason}
	repeated, err := o.transport.Request(ctx, protocol.KindProcessEvict, m, &protocol.Empty{})
	if repeated && errors.Is(err, client.ErrNotFound) {
		return nil // a first sending did it
	}
	return outcomeUnknown(repeated, err)
}

// Alter replaces the options of the process. It needs the right admin. Errors: ErrNotFound,
// ErrForbidden; ErrBadRequest, also for an option of members.
func (o *Operator) Alter(ctx context.Context, options Options) error {
	w, err := options.wire()
	if own := options.ofMember(); own != "" && err == nil {
		err = protocol.Errorf(protocol.StatusBadRequest, "%s belongs to one member, not to the process; give it to Join",
			own)
	}
	if err != nil {
		return fmt.Errorf("alter process %q: %w", o.transport.Name(), err)
	}
	m := &protocol.ProcessAlter{Node: o.transport.NodeID(), Name: []byte(o.transport.Name()), Options: w}
	return outcomeUnknown(o.transport.Request(ctx, protocol.KindProcessAlter, m, &protocol.Empty{}))
}

// outcomeUnknown says of an operator's request that its outcome is unknown, if it may have had its
// effect.
func outcomeUnknown(repeated bool, err error) error {
	var answer *protocol.Error
	if err != nil && repeated && !errors.As(err, &answer) {
		return fmt.Errorf("%w: %w", client.ErrOutcomeUnknown, err)
	}
	return err
}

// ChangeKind says what changed.
type ChangeKind = protocol.ProcessChangeKind

const (
	ChangeJoined   = protocol.ProcessJoined       // Session; Text is its key
	ChangeLeft     = protocol.ProcessLeft         // Session; Text is why
	ChangeAbsent   = protocol.ProcessAbsent       // Session has ended, and its key keeps its place
	ChangeReturned = protocol.ProcessReturned     // Session took the place that its key kept
	ChangeStarted  = protocol.ProcessStarted      // a round; Session is its coordinator's
	ChangePhase    = protocol.ProcessPhaseChanged // Phase
	ChangeEnded    = protocol.ProcessRoundEnded   // the round ended with Outcome; Text is why
	ChangeAltered  = protocol.ProcessAltered      // the options
	ChangeGone     = protocol.ProcessDeleted      // it had no members for long, and is removed
)

// Change is one change of a process.
type Change = protocol.ProcessChange

// WatchEvent is a step of a watch: the status when the watch begins or resumes, then changes.
type WatchEvent struct {
	Status *Status
	Absent bool // there is no such process; changes follow when there is
	Change *Change
}

// Watch yields the status and then every change, until ctx ends. It resumes by itself, with a new
// status, which is not older than what it yielded before. The last pair carries the error that
// ended it: ctx's, ErrForbidden.
func (o *Operator) Watch(ctx context.Context) iter.Seq2[WatchEvent, error] {
	return func(yield func(WatchEvent, error) bool) {
		for event, err := range o.transport.Watch(ctx) {
			switch {
			case err != nil:
				yield(WatchEvent{}, err)
				return
			case event.State != nil && !event.State.Exists:
				if !yield(WatchEvent{Absent: true}, nil) {
					return
				}
			case event.State != nil:
				if !yield(WatchEvent{Status: statusOf(&event.State.Status)}, nil) {
					return
				}
			default:
				for i := range event.Changes.Changes {
					if !yield(WatchEvent{Change: &event.Changes.Changes[i]}, nil) {
						return
					}
				}
			}
		}
	}
}
