package assign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/process"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Worker is a member of a process whose members share partitions.
type Worker struct {
	membership *process.Membership
	h          *handler
}

// Join makes the session a worker. It gets its share of the partitions when the next round is
// complete, and holder is called for each. All workers of a process must join with this package. If
// they differ in the number of partitions, the coordinator's counts: by default the oldest
// worker's. Options.Weight is the worker's share in proportion to the others', 0 counting as 1.
// With a Key and Return, a restarted worker resumes its partitions without any moving. Errors:
// those of process.Join, and a number of partitions that is not 1 to MaxPartitions.
func Join(
	ctx context.Context, s *client.Session, name string, partitions int, holder Holder, o process.Options,
) (*Worker, error) {
	h, err := newHandler(partitions, holder, o.Logger)
	if err != nil {
		return nil, fmt.Errorf("join process %q: %w", name, err)
	}
	p, err := process.Join(ctx, s, name, h, o)
	if err != nil {
		return nil, err
	}
	return &Worker{p, h}, nil
}

// Membership is the worker's membership: Done and Err say when and why it ended.
func (w *Worker) Membership() *process.Membership { return w.membership }

// Held lists the partitions that the worker holds, rising.
func (w *Worker) Held() []int { return w.h.assigned.list() }

// Owners lists the owner of each partition, as session ids by partition, after the last round that
// this worker completed; nil before the first. A worker that came back by its key has a new session
// since.
func (w *Worker) Owners() []uint64 {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	return slices.Clone(w.h.owners)
}

// Leave gives up all partitions, waits for Revoked of each, and ends the membership. So nobody
// waits for the end of the session, and nobody gets a partition that is still worked on: leave
// before the session is closed. The holder must not call it. Errors: those of
// process.Membership.Leave. The partitions are given up all the same; the worker's share is idle
// until another Leave, or until its session has ended.
func (w *Worker) Leave(ctx context.Context) error {
	w.h.assigned.close()
	return w.membership.Leave(ctx)
}

// handler is the process's side. In a round the coordinator asks all what they hold, shares, has
// all give up what is to move, and completes the round with the table when they have; all take what
// is theirs then.
type handler struct {
	partitions int
	assigned   assignedPartitions

	mu     sync.Mutex
	owners []uint64
}

func newHandler(partitions int, holder Holder, log *slog.Logger) (*handler, error) {
	if partitions < 1 || partitions > MaxPartitions {
		return nil, protocol.Errorf(protocol.StatusBadRequest, "%d partitions; there must be 1 to %d", partitions,
			MaxPartitions)
	}
	if holder == nil {
		return nil, protocol.Errorf(protocol.StatusBadRequest, "holder is nil; give one")
	}
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	return &handler{partitions: partitions,
		assigned: assignedPartitions{holder: holder, log: log, assignments: make(map[int]*assignment)}}, nil
}

// holdingsRequest is the coordinator's request to a worker.
type holdingsRequest struct {
	Table []byte // give up what is not yours in it; nil: just say what you hold
}

type holdingsReply struct{ Partitions []int }

var messages = process.NewMessages(process.JSON[holdingsRequest](), process.JSON[holdingsReply]())

// Initialize does nothing.
func (h *handler) Initialize(context.Context) error { return nil }

// Prepare does nothing: what a worker holds it goes on working on.
func (h *handler) Prepare(*process.Round) error { return nil }

// Coordinate is the coordinator's side.
func (h *handler) Coordinate(r *process.Round) error {
	answered := func(replies []process.Reply[holdingsReply]) {
		if err := h.propose(r, replies); err != nil {
			_ = r.Fail(err) // or it is over
		}
	}
	return messages.Broadcast(r, holdingsRequest{}, nil, process.Replies[holdingsReply]{Answered: answered})
}

// propose shares the partitions out, given what each worker holds.
func (h *handler) propose(r *process.Round, replies []process.Reply[holdingsReply]) error {
	t, err := tableFor(h.partitions, r.Members(), replies)
	if err != nil {
		return err
	}
	b := t.append(nil)
	loses := make(map[uint64]bool) // sessions
	for _, reply := range replies {
		m, _ := r.Member(reply.From)
		loses[reply.From] = len(lostPartitions(reply.Value.Partitions, t.of(m.Order))) > 0
	}
	holder := func(m process.Member) bool { return loses[m.Session] }
	answered := func(replies []process.Reply[holdingsReply]) {
		for _, reply := range replies {
			m, _ := r.Member(reply.From)
			err := reply.Err
			if err == nil && len(lostPartitions(reply.Value.Partitions, t.of(m.Order))) > 0 {
				err = errors.New("holds what it was to give up")
			}
			if err != nil {
				_ = r.Fail(fmt.Errorf("worker %d: %w", reply.From, err))
				return
			}
		}
		_ = r.Complete(b) // or it is over
	}
	return messages.Broadcast(r, holdingsRequest{Table: b}, holder,
		process.Replies[holdingsReply]{Answered: answered})
}

// tableFor is the table that moves least.
func tableFor(partitions int, members []process.Member, replies []process.Reply[holdingsReply]) (*table, error) {
	holds := make(map[uint64][]int) // by session
	for _, reply := range replies {
		if reply.Err != nil {
			return nil, fmt.Errorf("worker %d does not say what it holds: %w", reply.From, reply.Err)
		}
		holds[reply.From] = reply.Value.Partitions
	}
	t := new(table)
	list := make([]member, len(members))
	for i, m := range members {
		t.orders = append(t.orders, m.Order)
		list[i] = member{m.Weight, holds[m.Session]}
	}
	t.owner = share(partitions, list)
	return t, nil
}

// lostPartitions is what of a worker's partitions is not its own any more. Own rises.
func lostPartitions(holds, own []int) (list []int) {
	mine := make(map[int]bool, len(own))
	for _, p := range own {
		mine[p] = true
	}
	for _, p := range holds {
		if !mine[p] {
			list = append(list, p)
		}
	}
	return list
}

// Process is the worker's side.
func (h *handler) Process(q *process.Request) error {
	return messages.Handle(q, func(a holdingsRequest) (holdingsReply, error) {
		if a.Table != nil {
			t, err := readTable(a.Table)
			if err != nil {
				return holdingsReply{}, err
			}
			h.assigned.retain(t.of(q.Round().Self().Order))
		}
		return holdingsReply{h.assigned.list()}, nil
	})
}

// Cancel does nothing: what was given up is given to somebody in the next round.
func (h *handler) Cancel(*process.Round) {}

// Complete takes what is this worker's: its former worker has given it up. A worker that only
// learns from a newer round that this one is complete has no table, and takes nothing.
func (h *handler) Complete(r *process.Round) {
	if len(r.Result()) == 0 {
		return
	}
	t, err := readTable(r.Result())
	if err != nil {
		h.assigned.log.Error("assignment not readable, no partitions taken", "epoch", r.Epoch(), "error", err)
		return
	}
	members := r.Members()
	sessions := make(map[uint64]uint64, len(members)) // by order
	for _, m := range members {
		sessions[m.Order] = m.Session
	}
	owners := make([]uint64, len(t.owner))
	for p, i := range t.owner {
		owners[p] = sessions[t.orders[i]]
	}
	h.mu.Lock()
	h.owners = owners
	h.mu.Unlock()
	mine := t.of(r.Self().Order)
	h.assigned.retain(mine)
	h.assigned.assign(r.Membership(), mine, r.Token())
}

// Terminate gives up everything.
func (h *handler) Terminate() { h.assigned.close() }
