package client

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/contexts"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Election elects one of many sessions. It is an ephemeral semaphore that the leader holds whole.
// Candidates queue: the one that has waited longest leads next. A lock, an election and a service of
// one name are one semaphore: give each a name of its own.
type Election struct {
	ElectionReader
	s          *Session
	byPriority bool
}

// ElectionOption is an option of Session.Election.
type ElectionOption func(*Election)

// ElectionReader observes an election of either kind: the session that holds all units leads.
type ElectionReader struct {
	n    *Node
	name string
}

// Term is the time for which one session leads.
type Term struct {
	// Token is the fencing token: higher for every later term. Send it with every write that only
	// the leader may do.
	Token uint64
	// Lease is the leadership. Its context ends before another session can lead; its Release
	// resigns.
	Lease *Lease
}

// Leader describes the leader of an election.
type Leader struct {
	Exists      bool // false: nobody leads now
	Session     uint64
	Token       uint64
	Data        []byte // what the leader campaigned with
	Description string // of the leader's session
	Since       time.Time
}

// Campaign waits until the session leads. Data is shown to observers; Wait and OnQueued are other
// useful options, and by priority Priority, how much the session is preferred. A name with another
// use fails at once with ErrPreconditionFailed: a service, a shared lock, an election of the other
// kind. Other errors: as Acquire. Prefer Run.
func (e *Election) Campaign(ctx context.Context, opts ...AcquireOption) (Term, error) {
	if e.byPriority {
		return e.campaignByPriority(ctx, opts)
	}
	if err := checkElection(ctx, e.n, e.name); err != nil {
		return Term{}, err
	}
	l, err := e.s.Acquire(ctx, e.name, with(opts, whole)...)
	if err != nil {
		return Term{}, err
	}
	return Term{Token: l.Token(), Lease: l}, nil
}

// Resign gives up the leadership if the session leads. Errors: as Lease.Release.
func (e *Election) Resign(ctx context.Context) error {
	l := e.s.d.Lease(e.name)
	if l == nil {
		return nil
	}
	return withOp("release", e.name, releaseOutcome(ctx, e.s, l.Release(ctx)))
}

// Run campaigns, and calls lead while the session leads. The context of lead ends with ctx, and
// with the leadership, before another session can lead; lead must return then. It checks what
// Session.Run says. When lead returns by
// itself, Run resigns and returns lead's error. If the leadership was lost, Run waits for lead to
// return and campaigns again while the session lives. If lead returns nil when the leader is
// preempted, it has yielded: Run campaigns again.
//
// Errors: lead's; the end of ctx; the session's Err; ErrPreconditionFailed as of Campaign.
func (e *Election) Run(
	ctx context.Context, lead func(ctx context.Context, term Term) error, opts ...AcquireOption,
) error {
	return runTerms(ctx, e.s, lead, func() (Term, error) { return e.Campaign(ctx, opts...) })
}

// runTerms campaigns and leads, until lead returns by itself and has not yielded.
func runTerms(
	ctx context.Context, s *Session, lead func(ctx context.Context, term Term) error, campaign func() (Term, error),
) error {
	for {
		term, err := campaign()
		if err != nil {
			return err
		}
		yields := false
		_, err = contexts.During(ctx, term.Lease, func(ctx context.Context) error {
			err := lead(ctx, term)
			yields = err == nil && ctx.Err() == nil && isClosed(term.Lease.Preempted())
			return err
		})
		switch {
		case term.Lease.Lost() == nil && !yields:
			return err
		case s.Err() != nil:
			return s.Err()
		case ctx.Err() != nil:
			return interrupted(ctx)
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Leader reads who leads now.
func (e ElectionReader) Leader(ctx context.Context) (Leader, error) {
	sem, err := e.n.Describe(ctx, e.name, IncludeOwners(), ReadConsistency(Strict))
	if isNotFound(err) {
		return Leader{}, e.n.checkLives(ctx, err)
	}
	if err != nil {
		return Leader{}, err
	}
	return leaderOf(sem.Owners, sem.Limit), nil
}

// leaderOf is the owner of all units. Owners of single units are members of a service of the same
// name, or share a lock.
func leaderOf(owners []Owner, limit uint64) Leader {
	if len(owners) == 0 || owners[0].Count != limit {
		return Leader{}
	}
	o := owners[0]
	return Leader{Exists: true, Session: o.Session, Token: o.Token, Data: o.Data, Description: o.Description,
		Since: o.Since}
}

// Observe yields the leader and then every change, including that nobody leads, until ctx ends. It
// resumes by itself. A slow consumer misses leaders in between, never the last. The last pair
// carries the error that ended it.
func (e ElectionReader) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		var owners []Owner
		var yielded Leader
		synced, limit := false, uint64(0)
		for ev, err := range e.n.Watch(ctx, e.name) {
			if err != nil {
				yield(Leader{}, err)
				return
			}
			owners = applyEvent(owners, ev)
			if ev.Kind == EventChanged {
				limit = ev.Limit
			}
			first := !synced && ev.Kind == EventSynced
			synced = synced || first
			now := leaderOf(owners, limit)
			same := now.Token == yielded.Token && slices.Equal(now.Data, yielded.Data)
			if !first && (!synced || same) {
				continue
			}
			yielded = now
			if !yield(now, nil) {
				return
			}
		}
	}
}

func insertOwner(list []Owner, o Owner) []Owner {
	i, found := slices.BinarySearchFunc(list, o.Token, func(o Owner, id uint64) int { return cmp.Compare(o.Token, id) })
	if found {
		list[i] = o
		return list
	}
	return slices.Insert(list, i, o)
}

// applyEvent keeps a semaphore's owners up to date, by order id.
func applyEvent(owners []Owner, ev Event) []Owner {
	if ev.Kind == EventDeleted {
		return nil
	}
	for _, o := range ev.Removed {
		owners = slices.DeleteFunc(owners, func(have Owner) bool { return have.Token == o.Token })
	}
	for _, o := range ev.Added {
		owners = insertOwner(owners, o)
	}
	for _, o := range ev.Updated {
		owners = insertOwner(owners, o)
	}
	return owners
}

// How soon the leader of an election by priority yields, unless its semaphore says otherwise.
const (
	electionMinHold = 30 * time.Second // that a leader leads at least
	electionGrace   = 10 * time.Second // that it has to yield after that
)

// ElectByPriority elects the candidate of the highest Priority: the zone beside the database, the
// larger machine. Among equals, the one that has waited longest leads next. If a candidate of a
// higher priority than the leader's comes, the leader yields: its Lease.Preempted is closed at
// once, and it has ten seconds from then on, or from the end of the first thirty of its term. A lead
// of Run that goes on all the same has its context ended at the end of the grace. Lease.TransferTo
// of the term transfers the leadership to any session that campaigns, regardless of priority.
//
// Such an election is a semaphore of the name, with the limit 1, that stays; the first candidate
// creates it. An operator may alter its grace and its least time of a term. A name with any other
// use is refused.
func ElectByPriority() ElectionOption { return func(e *Election) { e.byPriority = true } }

func (e *Election) campaignByPriority(ctx context.Context, opts []AcquireOption) (Term, error) {
	opts = with(opts, func(o *acquireOptions) { o.refuse(givenAmount|givenLimit, errOwnAmount) })
	if o := acquireOptionsOf(opts); o.err != nil {
		return Term{}, withOp("campaign", e.name, o.err)
	}
	for {
		if err := e.present(ctx); err != nil {
			return Term{}, withOp("campaign", e.name, err)
		}
		l, err := e.s.acquire(ctx, e.name, opts)
		switch {
		case err == nil:
			return Term{Token: l.Token(), Lease: l}, nil
		case !answered(err) || !isNotFound(err):
			return Term{}, withOp("campaign", e.name, err)
		} // it was deleted meanwhile
	}
}

// present makes the semaphore if there is none, and refuses one of another kind.
func (e *Election) present(ctx context.Context) error {
	ctx, end := contexts.Both(e.s.d.Context(), ctx)
	defer end()
	for {
		sem, err := e.n.describe(ctx, e.name, ReadConsistency(Strict))
		switch {
		case e.s.d.Err() != nil:
			return e.s.d.Err()
		case err == nil && !isPriorityElection(sem):
			return protocol.Errorf(protocol.StatusPreconditionFailed,
				"the semaphore has another use; give the election by priority a name of its own, or delete the semaphore")
		case err == nil || !answered(err) || !isNotFound(err):
			return err
		}
		_, err = e.s.create(ctx, e.name, 1, nil, SemaphoreConfig{Policy: PolicyPriority, Preempt: PreemptLower,
			Grace: electionGrace, MinHold: electionMinHold})
		if err != nil && (!answered(err) || !errors.Is(err, ErrAlreadyExists)) {
			return err
		}
	}
}
