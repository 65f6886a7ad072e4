package client

import (
	"context"
	"iter"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Service is a set of members that find each other. It is a semaphore with the limit Max: each
// member holds a unit, and its data is its address. The semaphore is ephemeral unless it was
// created before. A lock, an election and a service of one name are one semaphore: give each a name
// of its own. A session that holds all units, such as a leader, is not a member.
type Service struct {
	ServiceReader
	s *Session
}

// ServiceReader finds the members of a service.
type ServiceReader struct {
	n    *Node
	name string
}

// Member is a member of a service.
type Member struct {
	Session     uint64
	Token       uint64 // never reused
	Data        []byte // as registered: an address, for one
	Description string // of the session
	Since       time.Time
}

// MemberEventKind says what a MemberEvent is.
type MemberEventKind uint8

const (
	MemberSnapshot MemberEventKind = 1 // Members is everybody: the first event
	MemberAdded    MemberEventKind = 2
	MemberChanged  MemberEventKind = 3 // other data
	MemberRemoved  MemberEventKind = 4
	// MemberInterrupted: the stream is lost, so the list may be old from now on. It comes once for
	// each interruption. The changes up to MemberSynced are the differences to the list before it.
	MemberInterrupted MemberEventKind = 5
	MemberSynced      MemberEventKind = 6 // the interruption is over
)

// MemberEvent is a step of Service.Watch.
type MemberEvent struct {
	Kind    MemberEventKind
	Member  Member   // with MemberAdded, MemberChanged, MemberRemoved
	Members []Member // with MemberSnapshot, by token
}

// Register makes the session a member, with data of at most 1 MiB. The lease is the membership. Its
// UpdateData replaces the data, its Release ends the membership at once, and its context ends when
// others may learn that the member is gone.
//
// Register waits while there are as many members as the limit of a semaphore that was created
// before. Wait bounds that. A name that one session holds whole, an election or a lock, fails at
// once with ErrPreconditionFailed, and so does an election by priority. A session is a member of a
// service once: ErrAlreadyHeld. Other errors: as Acquire. Package client/discovery keeps a member
// registered beyond its session.
func (sv *Service) Register(ctx context.Context, data []byte, opts ...AcquireOption) (*Lease, error) {
	if err := checkService(ctx, sv.n, sv.name); err != nil {
		return nil, err
	}
	own := Data(data)
	opts = with(opts, func(o *acquireOptions) {
		o.refuse(givenAmount|givenLimit, errOwnAmount)
		o.refuse(givenData, errOwnData)
		own(o)
	})
	l, err := sv.s.Acquire(ctx, sv.name, with(opts, Shared())...)
	if protocol.StatusOf(err) == protocol.StatusPreconditionFailed {
		// The semaphore exists with a limit. If it does not exist, a quota refused to create
		// it.
		limited, again := sv.s.Acquire(ctx, sv.name, opts...)
		if !isNotFound(again) {
			l, err = limited, again
		}
	}
	return l, err
}

// List reads the members, in order of registration. A service without members is empty, not an
// error.
func (sv ServiceReader) List(ctx context.Context, opts ...ReadOption) ([]Member, error) {
	if _, err := readOptionsOf(opts, memberOptions); err != nil {
		return nil, withOp("list members of", sv.name, err)
	}
	sem, err := sv.n.Describe(ctx, sv.name, append(opts[:len(opts):len(opts)], IncludeOwners())...)
	if isNotFound(err) {
		return nil, sv.n.checkLives(ctx, err)
	}
	if err != nil || isPriorityElection(sem) {
		return nil, err
	}
	return members(sem.Owners), nil
}

// Watch yields all members and then every change, until ctx ends. It resumes by itself: after an
// interruption, changes in the meantime are yielded as changes. The last pair carries the error that
// ended it.
func (sv ServiceReader) Watch(ctx context.Context) iter.Seq2[MemberEvent, error] {
	return func(yield func(MemberEvent, error) bool) {
		var first []Owner
		synced := false
		for ev, err := range sv.n.Watch(ctx, sv.name) {
			switch {
			case err != nil:
				yield(MemberEvent{}, err)
				return
			case !synced && ev.Kind == EventSynced:
				synced = true
				if !yield(MemberEvent{Kind: MemberSnapshot, Members: members(first)}, nil) {
					return
				}
				first = nil
			case !synced:
				first = applyEvent(first, ev)
			case ev.Kind == EventInterrupted:
				if !yield(MemberEvent{Kind: MemberInterrupted}, nil) {
					return
				}
			case ev.Kind == EventSynced:
				if !yield(MemberEvent{Kind: MemberSynced}, nil) {
					return
				}
			default:
				if !each(MemberRemoved, ev.Removed, yield) || !each(MemberAdded, ev.Added, yield) ||
					!each(MemberChanged, ev.Updated, yield) {
					return
				}
			}
		}
	}
}

func each(kind MemberEventKind, owners []Owner, yield func(MemberEvent, error) bool) bool {
	for _, o := range owners {
		if o.Count != Max && !yield(MemberEvent{Kind: kind, Member: member(o)}, nil) {
			return false
		}
	}
	return true
}

func member(o Owner) Member {
	return Member{Session: o.Session, Token: o.Token, Data: o.Data, Description: o.Description, Since: o.Since}
}

func members(owners []Owner) []Member {
	list := make([]Member, 0, len(owners))
	for _, o := range owners {
		if o.Count != Max {
			list = append(list, member(o))
		}
	}
	return list
}
