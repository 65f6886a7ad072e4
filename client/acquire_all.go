package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/contexts"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/boottime"
)

// MaxNames is how many names AcquireAll takes.
const MaxNames = 16

// Want is one of the names of AcquireAll, with options of its own.
type Want struct {
	Name    string
	Options []AcquireOption
}

// Bounds of HoldWhileWaiting.
const (
	minHoldWhileWaiting = time.Second
	maxHoldWhileWaiting = time.Hour
)

// HoldWhileWaiting is an option of AcquireAll: how long it waits for a name while it holds others,
// 1 s to 1 h, or Forever, the default. A bound ends a deadlock with programs that acquire the same
// names one by one in another order, at a price: a name whose queue is longer than the bound is
// never acquired, and the others are held from everybody meanwhile. FailOnDeadlock has no such price.
func HoldWhileWaiting(d time.Duration) AcquireOption {
	return func(o *acquireOptions) {
		o.whileHolding = d
		if d != Forever && (d < minHoldWhileWaiting || d > maxHoldWhileWaiting) && o.err == nil {
			o.err = protocol.Errorf(protocol.StatusBadRequest,
				"time to hold while waiting is %s; it must be 1s to 1h, or Forever", d)
		}
	}
}

var (
	errOneName = protocol.Errorf(protocol.StatusBadRequest,
		"HoldWhileWaiting goes with AcquireAll; an acquire of one name holds nothing while it waits")
	errWaitOfName = protocol.Errorf(protocol.StatusBadRequest,
		"Wait and HoldWhileWaiting are of all names; give them to AcquireAll itself")
)

// LeaseGroup is what AcquireAll acquired: a lease for each name. The leases are independent at the
// server, and each has its own token.
type LeaseGroup struct {
	s      *Session
	leases []*Lease
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// Leases are the leases, in the order of the bytes of their names.
func (g *LeaseGroup) Leases() []*Lease { return slices.Clone(g.leases) }

// Lease is that of a name; nil if the name was not acquired.
func (g *LeaseGroup) Lease(name string) *Lease {
	for _, l := range g.leases {
		if l.name == name {
			return l
		}
	}
	return nil
}

// Context ends with the first lease that ends, with its cause. The other leases stay held until
// Release. Its Err reads the clock, as Held does; Done, and contexts derived from it, end with a
// timer.
func (g *LeaseGroup) Context() context.Context {
	return &contexts.Checked{Context: g.ctx, Check: func() {
		for _, l := range g.leases {
			if ctx := l.Context(); ctx.Err() != nil {
				g.cancel(context.Cause(ctx))
			}
		}
	}}
}

// Held reports whether all leases may be relied on now, by the clock.
func (g *LeaseGroup) Held() bool {
	return !slices.ContainsFunc(g.leases, func(l *Lease) bool { return !l.Held() })
}

// Release gives everything back, in the reverse order. The leases end as they do with
// Lease.Release, whose errors are joined.
func (g *LeaseGroup) Release(ctx context.Context) error {
	g.cancel(ErrReleased)
	var errs []error
	for _, l := range slices.Backward(g.leases) {
		errs = append(errs, l.Release(ctx))
	}
	return errors.Join(errs...)
}

// add takes in a lease that was granted.
func (g *LeaseGroup) add(l *Lease) {
	g.leases = append(g.leases, l)
	context.AfterFunc(l.Context(), func() { g.cancel(context.Cause(l.Context())) })
}

func acquireAll(ctx context.Context, s *Session, wants []Want, opts []AcquireOption) (*LeaseGroup, error) {
	all, err := newGroupAcquire(s, wants, opts)
	if err != nil {
		return nil, withOp("acquire", namesOf(wants), err)
	}
	for {
		g := &LeaseGroup{s: s}
		g.ctx, g.cancel = context.WithCancelCause(s.d.Context())
		again, err := all.round(ctx, g)
		if err == nil {
			return g, nil
		}
		release, done := contexts.ForRelease(ctx)
		_ = g.Release(release)
		done()
		if !again || all.whileHolding == Forever {
			return nil, err
		}
		if !contexts.Sleep(ctx, min(rand.N(all.whileHolding/4), all.left())) {
			return nil, withOp("acquire", namesOf(wants), interrupted(ctx))
		}
	}
}

// groupAcquire is one AcquireAll.
type groupAcquire struct {
	s            *Session
	steps        []groupStep // by name
	wait         time.Duration
	began        time.Duration
	whileHolding time.Duration
}

type groupStep struct {
	name string
	o    acquireOptions // of a round, which works on a copy
}

func newGroupAcquire(s *Session, wants []Want, opts []AcquireOption) (*groupAcquire, error) {
	if len(wants) == 0 || len(wants) > MaxNames {
		return nil, protocol.Errorf(protocol.StatusBadRequest, "%d names are given; AcquireAll takes 1 to %d", len(wants),
			MaxNames)
	}
	common := acquireOptionsOf(opts)
	if common.err != nil {
		return nil, common.err
	}
	all := &groupAcquire{s: s, began: boottime.Now(), wait: Forever, whileHolding: Forever}
	if common.Timeout != protocol.Forever {
		all.wait = millis.Duration(common.Timeout)
	}
	if common.whileHolding != 0 {
		all.whileHolding = common.whileHolding
	}
	for _, w := range wants {
		own := acquireOptionsOf(w.Options)
		step := groupStep{w.Name, *acquireOptionsOf(with(opts, w.Options...))}
		switch {
		case w.Name == "":
			return nil, handle.ErrNoSemaphore
		case own.Timeout != protocol.Forever || own.whileHolding != 0:
			return nil, errWaitOfName
		case step.o.err != nil:
			return nil, step.o.err
		}
		all.steps = append(all.steps, step)
	}
	slices.SortFunc(all.steps, func(a, b groupStep) int { return strings.Compare(a.name, b.name) })
	for i, step := range all.steps[1:] {
		if step.name == all.steps[i].name {
			return nil, protocol.Errorf(protocol.StatusBadRequest, "name %q is given twice; give it once, with its count",
				step.name)
		}
	}
	return all, nil
}

// left is how long the caller still waits.
func (all *groupAcquire) left() time.Duration {
	if all.wait == Forever {
		return Forever
	}
	return max(0, all.wait-(boottime.Now()-all.began))
}

// round acquires each name in turn. again reports that it gave up only because others may wait for
// the names it held.
func (all *groupAcquire) round(ctx context.Context, g *LeaseGroup) (again bool, err error) {
	for _, step := range all.steps {
		holding, bound := len(g.leases) > 0, all.left()
		if holding && all.wait > 0 {
			bound = min(bound, all.whileHolding)
		}
		l, err := all.acquire(ctx, g, step, bound, holding)
		switch {
		case err == nil:
			g.add(l)
		case ctx.Err() != nil:
			return false, withOp("acquire", step.name, err)
		case g.ctx.Err() != nil:
			return false, withOp("acquire", step.name, context.Cause(g.ctx))
		case errors.Is(err, ErrNotAcquired) || errors.Is(err, errHeldLong):
			return holding && all.left() > 0, withOp("acquire", step.name, ErrNotAcquired)
		default:
			return false, withOp("acquire", step.name, err)
		}
	}
	return false, nil
}

// errHeldLong is the cause of the context of a wait that this client ended.
var errHeldLong = errors.New("the wait while holding other names ended")

// unansweredWait is how much longer than its bound a wait lasts if no server answers: the server
// measures the bound, and its shard may have no leader.
const unansweredWait = time.Second

func (all *groupAcquire) acquire(
	ctx context.Context, g *LeaseGroup, step groupStep, bound time.Duration, holding bool,
) (*Lease, error) {
	o := step.o
	if o.Timeout = protocol.Forever; bound != Forever {
		o.Timeout = millis.Of("acquire timeout", bound, &o.err)
	}
	ctx, end := contexts.Both(g.ctx, ctx)
	defer end()
	if holding && bound != Forever {
		bounded, done := context.WithTimeoutCause(ctx, bound+unansweredWait, errHeldLong)
		defer done()
		ctx = bounded
	}
	l, err := all.s.acquireWith(ctx, step.name, &o)
	if err != nil && errors.Is(context.Cause(ctx), errHeldLong) {
		return nil, errHeldLong
	}
	return l, err
}

func namesOf(wants []Want) string {
	names := make([]string, len(wants))
	for i, w := range wants {
		names[i] = w.Name
	}
	return strings.Join(names, " ")
}
