package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/contexts"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
	"github.com/signalbox-dev/signalbox/client/internal/waitgraph"
	"github.com/signalbox-dev/signalbox/protocol"
)

// WaitStep is a session that waits for a semaphore, and one that it waits for.
type WaitStep struct {
	Session     uint64
	Description string // of the session
	Name        string // of the semaphore that it waits for; empty if it waits for By to end
	Count       uint64
	Place       uint64 // in its queue
	Since       time.Time
	Ends        time.Time // when the wait ends by itself, by the server's clock; zero: never
	// By is a session that blocks the wait. If Holds, it holds units, with the token, else it is ahead
	// in the queue, and Token is its place. Without a Name it is a child: a command that runs under
	// Session started it, and Session gives nothing back before it ends.
	By            uint64
	ByDescription string
	Holds         bool
	Token         uint64
	BySince       time.Time
}

// String is a sentence for people.
func (s WaitStep) String() string {
	if s.Name == "" {
		return fmt.Sprintf("session %d%s waits for session %d%s to end, which its command started",
			s.Session, inBrackets(s.Description), s.By, inBrackets(s.ByDescription))
	}
	text := fmt.Sprintf("session %d%s waits for %s since %s (place %d", s.Session, inBrackets(s.Description), s.Name,
		clockText(s.Since), s.Place)
	if !s.Ends.IsZero() {
		text += ", until " + clockText(s.Ends)
	}
	by := fmt.Sprintf("session %d%s", s.By, inBrackets(s.ByDescription))
	if s.Holds {
		return text + fmt.Sprintf("), which %s holds since %s (token %d)", by, clockText(s.BySince), s.Token)
	}
	return text + fmt.Sprintf("), where %s is ahead in the queue (place %d)", by, s.Token)
}

func inBrackets(description string) string {
	if description == "" {
		return ""
	}
	return " (" + description + ")"
}

func clockText(t time.Time) string { return t.UTC().Format("15:04:05Z") }

// Deadlock is a set of sessions that wait for each other. None of them can go on unless one gives up
// a wait or what it holds. A session counts as one thread of work, which gives nothing back while it
// waits, or while a session that its command started lives: a program that uses one session for
// several jobs may see a false deadlock.
type Deadlock struct {
	Sessions []uint64 // by id
	// Steps are the waits of these sessions, each with one that blocks it: those of a cycle first.
	Steps []WaitStep
	// Confirmed: a second read, at least 1 s later, found the same entries, so all of it existed at
	// once.
	Confirmed bool
}

// Has reports whether a session is in the deadlock. Another one may wait behind it.
func (d *Deadlock) Has(session uint64) bool {
	return slices.Contains(d.Sessions, session)
}

const (
	// waitsTimeout bounds how long one read of the sessions that wait for each other takes.
	waitsTimeout = 2 * time.Second
	// confirmAfter is how much later a deadlock is read again.
	confirmAfter = time.Second
	// mostEntries of a semaphore are read for it; waiters that are further behind can go on, as far as
	// is known.
	mostEntries = 1000
)

// waitReads reads who waits for whom, as waitgraph's source.
type waitReads struct {
	ctx  context.Context
	n    *Node
	sems map[string]*Semaphore
	text map[uint64]string // descriptions of sessions
	cut  string
}

// readWaits follows the graph from some sessions.
func readWaits(ctx context.Context, n *Node, from []uint64) (*waitReads, *waitgraph.Graph) {
	ctx, done := context.WithTimeout(ctx, waitsTimeout)
	defer done()
	r := &waitReads{ctx: ctx, n: n, sems: make(map[string]*Semaphore), text: make(map[uint64]string)}
	g, cut := waitgraph.Read(r, from)
	if cut != "" {
		r.cut = cut
	}
	return r, g
}

// Waits implements waitgraph.Source.
func (r *waitReads) Waits(session uint64) (names []string, children []uint64, err error) {
	var reading sync.WaitGroup
	var failed error
	reading.Go(func() {
		for child, err := range childrenOf(r.ctx, r.n, session) {
			if failed = err; err != nil {
				return
			}
			children = append(children, child.id)
			r.text[child.id] = child.description
		}
	})
	for info, err := range r.n.List(r.ctx, "", OfSession(session), ReadConsistency(Strict)) {
		if err != nil {
			reading.Wait()
			return nil, nil, r.cause(err)
		}
		if info.Waiting {
			names = append(names, info.Name)
		}
	}
	reading.Wait()
	if failed != nil {
		return nil, nil, r.cause(failed)
	}
	return names, children, nil
}

// cause is an error of a read without the read's own name.
func (r *waitReads) cause(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("there was no answer within %s", waitsTimeout)
	}
	if answer, ok := errors.AsType[*protocol.Error](err); ok {
		return answer
	}
	return err
}

type childSession struct {
	id          uint64
	description string
}

// childrenOf yields the sessions that a command of a session started, by id.
func childrenOf(ctx context.Context, n *Node, session uint64) iter.Seq2[childSession, error] {
	key := func(c *childSession) string { return string(childCursor(c.id)) }
	read := func(shard uint64, cursor []byte) (page handle.ListPage[childSession], err error) {
		if len(cursor) == 0 {
			cursor = childCursor(0) // after all objects that are not sessions
		}
		req := &protocol.SessionObjects{Shard: shard, Node: n.h.ID, Session: session, Cursor: cursor}
		var reply protocol.SessionObjectsReply
		if _, err := n.h.Call(ctx, n.h.AtShard(shard), protocol.KindSessionObjects, req, &reply); err != nil {
			return page, err
		}
		items := make([]childSession, 0, len(reply.Objects))
		for _, o := range reply.Objects {
			if o.Type == protocol.ObjectSession && len(o.Name) == 8 {
				items = append(items, childSession{binary.BigEndian.Uint64(o.Name), o.Label})
			}
		}
		return handle.ListPage[childSession]{Items: items, Next: reply.Cursor, Runs: reply.Runs}, nil
	}
	return handle.ListShards(ctx, n.h, "list children of sessions of", n.h.Path, handle.ListLimits{}, key, read)
}

// childCursor is the cursor behind a child.
func childCursor(id uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{byte(protocol.ObjectSession)}, id)
}

// Semaphore implements waitgraph.Source.
func (r *waitReads) Semaphore(name string) (*waitgraph.Semaphore, error) {
	sem, err := r.n.describe(r.ctx, name, IncludeOwners(), IncludeWaiters(), IncludeSlots(), ReadConsistency(Strict),
		MaxItems(mostEntries))
	if err != nil {
		return nil, r.cause(err)
	}
	if unread := sem.NumOwners + sem.NumWaiters - uint64(len(sem.Owners)+len(sem.Waiters)); unread > 0 && r.cut == "" {
		r.cut = fmt.Sprintf("%d owners and waiters of %s", unread, name)
	}
	r.sems[name] = sem
	for _, o := range sem.Owners {
		r.text[o.Session] = o.Description
	}
	for _, w := range sem.Waiters {
		r.text[w.Session] = w.Description
	}
	x := &waitgraph.Semaphore{Name: name, Limit: sem.Limit}
	if o := sem.Config; o != nil {
		x.Policy, x.Aging = protocol.QueuePolicy(o.Policy), o.Aging > 0
		for _, slot := range o.Slots {
			x.Slots = append(x.Slots, waitgraph.Slot{Name: slot.Name, Labels: slot.Labels, Session: slot.Session,
				Leaving: slot.State == SlotLeaving})
		}
	}
	for _, o := range sem.Owners {
		x.Owners = append(x.Owners, waitgraph.Owner{Session: o.Session, Token: o.Token, Count: o.Count, Slots: o.Slots})
	}
	for _, w := range sem.Waiters {
		x.Waiters = append(x.Waiters, waitgraph.Waiter{Session: w.Session, Place: w.Place, Count: w.Count,
			Level: w.Priority,
			Key:   w.Key, Labels: w.Labels, Names: w.Slots, Rank: w.Rank})
	}
	return x, nil
}

// findDeadlock looks for a deadlock from some sessions on, twice if there seems to be one. behind
// lists the waits of the sessions that block them, the nearest first.
func findDeadlock(ctx context.Context, n *Node, from []uint64) (d *Deadlock, behind []WaitStep, r *waitReads) {
	r, first := readWaits(ctx, n, from)
	for _, session := range first.Order {
		if len(from) != 1 || session != from[0] {
			behind = append(behind, r.steps(first, session, nil)...)
		}
	}
	set := first.Core()
	if len(set) == 0 {
		return nil, behind, r
	}
	g := first
	confirmed := false
	if contexts.Sleep(ctx, confirmAfter) {
		again, second := readWaits(ctx, n, from)
		confirmed = waitgraph.Confirmed(first, second)
		if g, r, set = second, again, second.Core(); len(set) == 0 {
			return nil, behind, r
		}
	}
	d = &Deadlock{Sessions: set, Confirmed: confirmed}
	for _, session := range g.Path(from, set) {
		d.Steps = append(d.Steps, r.steps(g, session, set)...)
	}
	return d, behind, r
}

// steps are the waits of a session, each with the first one that blocks it: of a set, if there is one.
func (r *waitReads) steps(g *waitgraph.Graph, session uint64, set []uint64) (steps []WaitStep) {
	for _, name := range g.Waits[session] {
		sem := r.sems[name]
		blockers := g.Blockers(name, session, set)
		if sem == nil || len(blockers) == 0 {
			continue
		}
		b := blockers[0]
		s := WaitStep{Session: session, Name: name, By: b.Session, Holds: b.Holds, Token: b.ID}
		for _, w := range sem.Waiters {
			switch w.Session {
			case session:
				s.Description, s.Count, s.Place, s.Since = w.Description, w.Count, w.Place, w.Since
				if w.Timeout != Forever {
					s.Ends = w.Since.Add(w.Timeout)
				}
			case b.Session:
				s.ByDescription, s.BySince = w.Description, w.Since
			}
		}
		for _, o := range sem.Owners {
			if o.Session == b.Session {
				s.ByDescription, s.BySince = o.Description, o.Since
			}
		}
		steps = append(steps, s)
	}
	for _, child := range g.Children[session] {
		waits := len(g.Waits[child])+len(g.Children[child]) > 0
		if len(steps) == 0 && (set == nil && waits || slices.Contains(set, child)) {
			steps = append(steps, WaitStep{Session: session, Description: r.text[session], By: child,
				ByDescription: r.text[child]})
		}
	}
	return steps
}

const (
	// firstLook and nextLook are how long an acquire waits before it looks for a deadlock, the latter
	// give or take a fifth.
	firstLook = 2 * time.Second
	nextLook  = 5 * time.Second
)

// acquireUnlessDeadlocked is acquireOnce, and looks for a deadlock while that waits.
func acquireUnlessDeadlocked(ctx context.Context, s *Session, name string, o acquireOptions) (*Lease, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var looking sync.WaitGroup
	var once sync.Once
	queued := o.OnQueued
	o.OnQueued = func(place uint64) {
		once.Do(func() {
			looking.Go(func() {
				for wait := firstLook; contexts.Sleep(ctx, wait); wait = nextLook*4/5 + rand.N(nextLook*2/5) {
					if d := deadlockToFailOf(ctx, s); d != nil {
						cancel(&DeadlockError{d})
					}
				}
			})
		})
		if queued != nil {
			queued(place)
		}
	}
	l, err := s.acquireOnce(ctx, name, &o)
	cancel(nil)
	looking.Wait()
	if dead, ok := errors.AsType[*DeadlockError](context.Cause(ctx)); ok && err != nil {
		return nil, dead
	}
	return l, err
}

// deadlockToFailOf returns a confirmed deadlock that the session has to end, or nil.
func deadlockToFailOf(ctx context.Context, s *Session) *Deadlock {
	d, _, r := findDeadlock(ctx, &s.node, []uint64{s.d.ID})
	if d == nil || !d.Confirmed || !d.Has(s.d.ID) {
		return nil
	}
	for _, sem := range r.sems {
		for _, w := range sem.Waiters {
			if w.FailOnDeadlock && w.Session > s.d.ID && d.Has(w.Session) {
				return nil
			}
		}
	}
	return d
}

// DeadlockError is the error of an acquire with FailOnDeadlock; it is ErrDeadlock.
type DeadlockError struct{ Deadlock *Deadlock }

// Error lists the steps.
func (e *DeadlockError) Error() string {
	steps := make([]string, len(e.Deadlock.Steps))
	for i, s := range e.Deadlock.Steps {
		steps[i] = s.String()
	}
	return ErrDeadlock.Error() + ": " + strings.Join(steps, "; ")
}

// Is reports whether target is ErrDeadlock.
func (e *DeadlockError) Is(target error) bool { return target == ErrDeadlock }
