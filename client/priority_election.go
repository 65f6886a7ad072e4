package client

import (
	"context"
	"errors"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/contexts"
	"github.com/signalbox-dev/signalbox/protocol"
)

// How soon the leader of an election by priority yields, unless its semaphore says otherwise.
const (
	ElectionMinHold = 30 * time.Second // that a leader leads at least
	ElectionGrace   = 10 * time.Second // that it has to yield after that
)

// ElectByPriority elects the candidate of the highest Priority: the zone beside the database, the
// larger machine. Among equals, the one that has waited longest leads next. If a candidate of a
// higher priority than the leader's comes, the leader yields: its Lease.Preempted is closed at
// once, and it has ElectionGrace from then on, or from the end of its first ElectionMinHold. A lead
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
			Grace: ElectionGrace, MinHold: ElectionMinHold})
		if err != nil && (!answered(err) || !errors.Is(err, ErrAlreadyExists)) {
			return err
		}
	}
}
