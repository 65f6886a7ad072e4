package httpapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/gateway"
	"github.com/signalbox-dev/signalbox/server/httpapi/machine"
)

// set is what an acquire asks for.
type set struct {
	ephemeral     bool
	count, limit  uint64
	priority      int // -1: not given
	key           string
	labels, slots []string
	hold          time.Duration
	data          []byte
	tries         bool // it does not wait
	leaves        bool // the queue, when its wait is over
	holder        string
	ttl, wait     time.Duration
}

// sum is the set as the machine compares it.
func (a *set) sum() machine.Set {
	return machine.Set{Ephemeral: a.ephemeral, Count: a.count, Data: sha256.Sum256(a.data),
		Rest: sha256.Sum256(fmt.Appendf(nil, "%d %d %q %q %q %d %t", a.limit, a.priority, a.key, a.labels, a.slots, a.hold, a.tries))}
}

// readSet reads the parameters of an acquire.
func (x *call) readSet() (*set, error) {
	a := &set{data: x.body, key: x.query.Get("key"), labels: x.query["label"], slots: x.query["slot"], priority: -1,
		holder: x.query.Get("holder"), count: x.number("count"), limit: x.number("limit"),
		ttl: x.duration("ttl"), wait: x.duration("wait"), hold: x.duration("hold"), tries: x.duration("wait") == 0, leaves: x.query.Has("leave")}
	if x.query.Has("priority") {
		a.priority = int(x.number("priority"))
	}
	mode := x.query.Get("mode")
	switch {
	case mode != "" && a.count != 0:
		return nil, badRequest("mode is of locks, and count of semaphores; give one of them")
	case a.limit != 0 && a.count == 0:
		return nil, badRequest("limit is given without count; give both, for a semaphore")
	case a.count != 0:
	case mode == "" || mode == "exclusive":
		a.ephemeral, a.count = true, client.Max
	case mode == "shared":
		a.ephemeral, a.count = true, 1
	default:
		return nil, badRequest("mode is %q; it can be exclusive or shared", mode)
	}
	switch {
	case len(a.holder) > 200 || !utf8.ValidString(a.holder):
		return nil, badRequest("holder has %d bytes; at most 200 of UTF-8 are allowed", len(a.holder))
	case strings.HasPrefix(x.name, client.ConfigPrefix):
		return nil, badRequest("names below %s are of configurations; see /v1/config/", client.ConfigPrefix)
	case len(a.slots) > 0 && uint64(len(a.slots)) != a.count:
		return nil, badRequest("%d slots are named and count is %s; give as many", len(a.slots), x.query.Get("count"))
	case a.leaves && a.tries:
		return nil, badRequest("leave is of a request that waits; give wait too")
	case x.streams && x.r.Header.Get(sessionHeader) == "": // the session is the stream's own
		if a.ttl = cmp.Or(a.ttl, streamTTL); a.ttl < minStreamTTL || a.ttl > maxStreamTTL {
			return nil, badRequest("ttl is %s; a stream's own session can have %s to %s", a.ttl, minStreamTTL,
				maxStreamTTL)
		}
	}
	return a, nil
}

func (a *set) options() []client.AcquireOption {
	opts := []client.AcquireOption{client.Count(a.count), client.Data(a.data), gateway.IgnorePreemption()}
	if a.ephemeral {
		opts = append(opts, client.Ephemeral())
	}
	if a.limit > 0 {
		opts = append(opts, client.CreateLimit(a.limit))
	}
	if a.priority >= 0 {
		opts = append(opts, client.Priority(a.priority))
	}
	if a.key != "" {
		opts = append(opts, client.Key(a.key))
	}
	if len(a.labels) > 0 {
		opts = append(opts, client.Labels(a.labels...))
	}
	if len(a.slots) > 0 {
		opts = append(opts, client.Slots(a.slots...))
	}
	if a.hold > 0 {
		opts = append(opts, client.MaxHold(a.hold))
	}
	return opts
}

// operation is an acquire or a release under way. It outlives the request that began it.
type operation struct {
	cancel context.CancelFunc // of an acquire
	queued chan struct{}      // closed when the cluster has said that it waits
	done   chan struct{}      // closed when it has ended, and what was given up is given back
}

func newOperation(cancel context.CancelFunc) *operation {
	return &operation{cancel, make(chan struct{}), make(chan struct{})}
}

// isPreempted reports whether a waiter preempts a lease.
func isPreempted(l *client.Lease) bool {
	select {
	case <-l.Preempted():
		return true
	default:
		return false
	}
}

func acquireLock(x *call) error {
	a, err := x.readSet()
	if err != nil {
		return err
	}
	own := x.streams && x.r.Header.Get(sessionHeader) == ""
	if own {
		x.r.Header.Set(sessionHeader, rand.Text())
	}
	if err := x.open(a.ttl, a.holder); err != nil {
		return err
	}
	if x.streams {
		return (&stream{x: x, s: x.s, own: own}).serve(a)
	}
	err = x.answer(a)
	p := problemOf(err)
	refused := err != nil && p.status < 500 && p.status != http.StatusTooManyRequests && p.code != notAcquired &&
		p.code != errAborted.code // else it is repeated
	if refused && x.s.generation == 0 && !x.began.After(x.s.since) {
		x.s.step((*machine.Session).LeaveRefused)
	} else {
		x.s.leave()
	}
	return err
}

// answer acquires, and answers with the lease or the place in the queue, which is kept.
func (x *call) answer(a *set) error {
	l, err := x.acquire(a, nil)
	if err != nil {
		return err
	}
	if l == nil {
		d := document{"state": "waiting"}
		setBytes(d, "name", []byte(x.name))
		x.describeQueue(d)
		return x.report(http.StatusAccepted, d)
	}
	d, err := x.grant(l)
	if err != nil {
		return err
	}
	return x.write(http.StatusOK, d)
}

// acquire gives a lease as the set says, or nil without an error if it waits still. each, if not
// nil, is called while it waits, and says when it is to be called again. A stream calls forget when
// it ends.
func (x *call) acquire(a *set, each func() (time.Duration, error)) (*client.Lease, error) {
	x.id, x.replies = machine.Call(x.api.calls.Add(1)), make(chan machine.Reply, 2) // as a waiter, and as a stream
	if !x.streams {
		defer x.forget()
	}
	for {
		var step machine.Step
		var op *operation
		x.s.step(func(m *machine.Session, _ time.Duration) {
			if m.State() != machine.Live {
				return
			}
			x.s.replies[x.id] = x.replies
			if step = m.Acquire(x.id, x.name, a.sum(), x.streams); step.Start {
				x.s.start(step, x.name, a)
			}
			op = x.s.ops[step.Op]
		})
		switch {
		case step.Refused:
			return nil, badRequest("the session holds %s, and the request is for %s; release it first, or use another session",
				amountText(step.Held.Ephemeral, step.Held.Count), amountText(a.ephemeral, a.count))
		case step.Op != 0:
			if l, err := x.await(a, op, each); err != nil || l == nil || l.Held() {
				return l, err
			}
		case step.Lease != nil:
			l := step.Lease.(*client.Lease)
			held, err := x.stillHeld(l)
			if err == nil && held {
				err = x.change(l, a)
			}
			if err != nil || held && l.Held() {
				return l, err
			}
		default: // it was ended, or moved, just now
			return nil, cmp.Or(context.Cause(x.s.ctx), error(errExpired.because(x.s.lossOf(""))))
		}
	} // it was lost again already
}

// amountText says what an acquire is for.
func amountText(ephemeral bool, n uint64) string {
	switch {
	case !ephemeral:
		return fmt.Sprintf("%v units of a semaphore", count(n))
	case n == client.Max:
		return "an exclusive lock"
	}
	return "a shared lock"
}

// forget ends what the machine knows of a request.
func (x *call) forget() {
	x.s.step(func(m *machine.Session, _ time.Duration) {
		m.WaitOver(x.id, x.name)
		delete(x.s.replies, x.id)
	})
}

// start begins an acquire, behind the one that was given up. A stop of the gateway does not end it:
// the session's place in the queue is kept for the next gateway. mu is held.
func (s *session) start(step machine.Step, name string, a *set) {
	ctx, cancel := context.WithCancel(context.Background())
	op, before := newOperation(cancel), s.ops[step.After]
	s.ops[step.Op] = op
	go func() {
		defer cancel()
		if before != nil {
			<-before.done
		}
		queue := sync.OnceFunc(func() { close(op.queued) })
		acquire := s.native.Acquire
		if a.tries {
			acquire = s.native.TryAcquire
		}
		l, err := acquire(ctx, name, append(a.options(), client.OnQueued(func(uint64) { queue() }))...)
		var lease machine.Lease
		if l != nil {
			lease = l
		}
		var ended bool
		s.step(func(m *machine.Session, _ time.Duration) { ended = m.Done(step.Op, name, lease, err) })
		if ended {
			s.ended(step.Op, name)
		}
		if l != nil {
			s.watch(name, l)
		}
	}()
}

// giveBack releases what nobody waits for any more. It goes on in the background after a while.
func (s *session) giveBack(l *client.Lease) {
	ctx, cancel := context.WithTimeout(s.ctx, stopTime)
	defer cancel()
	_ = l.Release(ctx)
}

// await waits for an acquire. Without a lease and an error it waits still, as the cluster has said. A
// caller that has hung up is answered as one whose time to wait is over: it may have closed its side
// alone.
func (x *call) await(a *set, op *operation, each func() (time.Duration, error)) (*client.Lease, error) {
	wait, gone := a.wait, x.r.Context().Done()
	if a.tries && !x.streams {
		gone = nil // it is answered soon
	}
	timer := time.NewTimer(wait - min(wait, time.Since(x.began)))
	defer timer.Stop()
	var next <-chan time.Time
	var placed <-chan struct{} // a refusal that comes before is an answer like others
	if each != nil && !a.tries {
		next, placed = time.After(quiet), op.queued
	}
	var queued <-chan struct{} // nil: there is time to wait
	leave := func(m *machine.Session, now time.Duration) { m.HungUp(now, x.id, x.name) }
	for over := false; !over; {
		select {
		case r := <-x.replies:
			return x.outcome(r)
		case <-x.s.ctx.Done():
			why := context.Cause(x.s.ctx)
			if x.api.ctx.Err() != nil {
				return nil, errClosing
			}
			select {
			case <-op.queued:
				if why == errTokenEnds && !x.streams && !a.leaves {
					return nil, nil // its place is kept for the next token
				}
			default:
			}
			return nil, why
		case <-placed:
			next, placed = time.After(0), nil
		case <-next:
			again, err := each()
			if err != nil {
				return nil, err
			}
			next = time.After(again)
		case <-timer.C:
			if over = queued != nil; !over { // the first answer of the cluster has its own time
				queued = op.queued
				timer.Reset(answerTimeout)
			}
		case <-gone:
			if over = x.streams; !over {
				gone, queued = nil, op.queued
				timer.Reset(answerTimeout)
			}
		case <-queued:
			switch over = true; {
			case x.r.Context().Err() != nil:
			case a.leaves:
				leave = func(m *machine.Session, _ time.Duration) { m.GiveUp(x.id, x.name) }
			default:
				leave = func(m *machine.Session, _ time.Duration) { m.WaitOver(x.id, x.name) }
			}
		}
	}
	x.s.step(leave)
	select {
	case r := <-x.replies: // it came first
		return x.outcome(r)
	default:
	}
	select {
	case <-op.queued:
	default:
		return nil, problemf(http.StatusGatewayTimeout, "outcome_unknown",
			"the cluster did not answer within %s; repeat the request", answerTimeout)
	}
	switch hungUp := x.r.Context().Err() != nil; {
	case hungUp && x.streams:
		return nil, errGone
	case !hungUp && a.leaves:
		return nil, x.notAcquired()
	}
	return nil, nil
}

// outcome is what a request that waits is answered.
func (x *call) outcome(r machine.Reply) (*client.Lease, error) {
	switch {
	case r.Aborted:
		return nil, errAborted
	case r.Lease != nil:
		return r.Lease.(*client.Lease), nil
	case errors.Is(r.Err, client.ErrNotAcquired):
		return nil, x.notAcquired()
	case x.api.ctx.Err() != nil:
		return nil, errClosing
	case errors.Is(r.Err, context.Canceled) && x.s.ctx.Err() != nil:
		return nil, context.Cause(x.s.ctx)
	}
	return nil, r.Err
}

// change has a lease that is held be as a repeat says.
func (x *call) change(l *client.Lease, a *set) error {
	if a.count < l.Count() {
		if err := l.Reduce(x.ctx, a.count); err != nil {
			return err
		}
	}
	if now, set := x.s.lease(x.name); now != l || set.Data != a.sum().Data {
		if err := l.UpdateData(x.ctx, a.data); err != nil {
			return err
		}
		x.s.step(func(m *machine.Session, _ time.Duration) { m.Changed(x.name, l, a.sum()) })
	}
	if a.hold > 0 {
		if err := l.Extend(x.ctx, a.hold); err != nil && !errors.Is(err, client.ErrPreconditionFailed) {
			return err
		}
	}
	return nil
}

// grant describes a lease that is held.
func (x *call) grant(l *client.Lease) (document, error) {
	d := document{"state": "acquired", "token": l.Token(), "count": count(l.Count()), "holder": x.s.holder,
		"preempt": isPreempted(l)}
	setBytes(d, "name", []byte(x.name))
	if slots := l.Slots(); len(slots) > 0 {
		d["slots"] = slots
	}
	if until := l.Until(); !until.IsZero() {
		d["ends_in_ms"] = max(0, time.Until(until).Milliseconds())
	}
	if err := x.belief(d, l); err != nil {
		return nil, err
	}
	if !l.Held() {
		return nil, errLost
	}
	x.w.Header().Set(tokenHeader, strconv.FormatUint(l.Token(), 10))
	return d, nil
}

// notAcquired says who holds it.
func (x *call) notAcquired() error {
	p := problemf(http.StatusConflict, notAcquired, "it is held; give a longer wait, or try again later")
	p.more = document{}
	x.describeQueue(p.more)
	return p
}

// maxHolders are named in a refusal.
const maxHolders = 10

// describeQueue adds who holds a name, and the session's place in the queue, as far as can be read
// quickly: an answer does not depend on it.
func (x *call) describeQueue(d document) {
	ctx, cancel := context.WithTimeout(x.s.ctx, time.Second)
	defer cancel()
	sem, err := describe(ctx, x.s.native.Node(), x.name)
	if err != nil {
		return
	}
	d["holders"] = owners(sem.Owners[:min(len(sem.Owners), maxHolders)], nil)
	for i, w := range sem.Waiters {
		if w.Session == x.s.native.ID() {
			d["position"] = i + 1
		}
	}
}

// releaseLock releases, or leaves the queue. With a token it takes nothing but that grant.
func releaseLock(x *call) error {
	if err := x.adoptGrants(); err != nil {
		return err
	}
	var r machine.Release
	var before *operation
	x.s.step(func(m *machine.Session, _ time.Duration) {
		if r = m.Release(x.name, x.number("token")); r.Op != 0 {
			x.s.ops[r.Op], before = newOperation(nil), x.s.ops[r.After]
		}
	})
	if r.Op == 0 {
		if err := x.stillServed(); err != nil {
			return err
		}
		return x.write(http.StatusOK, document{"released": false})
	}
	defer x.s.ended(r.Op, x.name)
	if before != nil {
		select {
		case <-before.done:
		case <-x.ctx.Done():
			return x.ctx.Err()
		}
	}
	var released bool
	var err error
	if r.Lease != nil {
		err = r.Lease.(*client.Lease).Release(x.ctx)
		if released = err == nil; errors.Is(err, client.ErrLeaseLost) {
			err = x.stillServed()
		}
	} else {
		released, err = x.s.native.Release(x.ctx, x.name)
	}
	if err != nil {
		return err
	}
	return x.write(http.StatusOK, document{"released": released || r.Queued})
}
