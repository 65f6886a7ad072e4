package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/gateway"
)

// returnTime is how long a caller that hung up while it waited has to come again. Then its place is
// left, and a grant that came meanwhile is given back.
const returnTime = 5 * time.Second

// set is what an acquire asks for. Two that are the same are one set: a repeat.
type set struct {
	ephemeral     bool
	count, limit  uint64
	priority      int // -1: not given
	key           string
	labels, slots []string
	hold          time.Duration
	data          []byte
	tries         bool // it does not wait
	holder        string
	ttl, wait     time.Duration
}

func (a *set) same(b *set) bool {
	return a.ephemeral == b.ephemeral && a.count == b.count && a.limit == b.limit && a.priority == b.priority &&
		a.key == b.key && a.hold == b.hold && a.tries == b.tries && slices.Equal(a.labels, b.labels) &&
		slices.Equal(a.slots, b.slots) && bytes.Equal(a.data, b.data)
}

// readSet reads the parameters of an acquire.
func (x *call) readSet() (*set, error) {
	a := &set{data: x.body, key: x.query.Get("key"), labels: x.query["label"], slots: x.query["slot"], priority: -1,
		holder: x.query.Get("holder"), count: x.number("count"), limit: x.number("limit"),
		ttl: x.duration("ttl"), wait: x.duration("wait"), hold: x.duration("hold"), tries: x.duration("wait") == 0}
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

// held is what a session has of a name, or waits for.
//
// Invariant: wait is the only acquire of the name under way.
type held struct {
	set    *set          // of lease or wait
	lease  *client.Lease // nil: none is known
	wait   *waiting
	newest chan struct{} // closed when a newer acquire of the name comes
	stream chan struct{} // closed when a newer stream of the name comes
}

// waiting is an acquire under way. It outlives the request that began it.
type waiting struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when lease or err is set
	given  bool          // up: a grant is given back; guarded by the session's mu
	lease  *client.Lease
	err    error
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
	return x.answer(a)
}

// answer acquires, and answers with the lease or the place in the queue, which is kept.
func (x *call) answer(a *set) error {
	defer x.s.leave()
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
// nil, is called while it waits, and says when it is to be called again.
func (x *call) acquire(a *set, each func() (time.Duration, error)) (*client.Lease, error) {
	for {
		l, w, newest, err := x.s.begin(x.name, a)
		switch {
		case err != nil:
		case l != nil:
			err = x.change(l, a)
		default:
			l, err = x.await(w, newest, a, each)
		}
		if err != nil || l == nil || l.Held() {
			return l, err
		}
	} // it was lost again already
}

// begin gives the lease of a name, or the acquire under way. One with other parameters is given up
// first.
func (s *session) begin(name string, a *set) (l *client.Lease, w *waiting, newest chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.heldOf(name)
	if h.newest != nil {
		close(h.newest)
	}
	newest = make(chan struct{})
	h.newest = newest
	switch {
	case h.lease != nil && h.lease.Held():
		if h.set.ephemeral != a.ephemeral || a.count > h.lease.Count() {
			return nil, nil, nil, badRequest("the session holds %d units of it, and %d are asked for; release it first, or use another session",
				h.lease.Count(), a.count)
		}
		return h.lease, nil, newest, nil
	case h.wait != nil && h.set.same(a):
		return nil, h.wait, newest, nil
	case h.wait != nil:
		h.wait.giveUp()
	}
	h.lease, h.set, h.wait = nil, a, s.start(name, h, a)
	return nil, h.wait, newest, nil
}

// heldOf is what the session has of a name. mu is held.
func (s *session) heldOf(name string) *held {
	if s.names[name] == nil {
		s.names[name] = new(held)
	}
	return s.names[name]
}

// giveUp ends an acquire, and gives back what it may get. The session's mu is held.
func (w *waiting) giveUp() {
	w.given = true
	w.cancel()
}

// start begins an acquire, behind the one that was given up. A stop of the gateway does not end it:
// the session's place in the queue is kept for the next gateway.
func (s *session) start(name string, h *held, a *set) *waiting {
	before := h.wait
	ctx, cancel := context.WithCancel(context.Background())
	w := &waiting{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer cancel()
		if before != nil {
			<-before.done
		}
		acquire := s.native.Acquire
		if a.tries {
			acquire = s.native.TryAcquire
		}
		l, err := acquire(ctx, name, a.options()...)
		if l == nil && err == nil {
			err = client.ErrNotAcquired
		}
		s.mu.Lock()
		back := w.given && l != nil
		w.lease, w.err = l, err
		if h.wait == w {
			h.wait = nil
			if !back {
				h.lease = l
			}
		}
		s.mu.Unlock()
		if back {
			s.giveBack(l)
		}
		close(w.done)
	}()
	return w
}

// giveBack releases what nobody waits for any more. It goes on in the background after a while.
func (s *session) giveBack(l *client.Lease) {
	ctx, cancel := context.WithTimeout(s.ctx, stopTime)
	defer cancel()
	_ = l.Release(ctx)
}

// await waits for an acquire. Without a lease and an error it waits still.
func (x *call) await(
	w *waiting, newest chan struct{}, a *set, each func() (time.Duration, error),
) (*client.Lease, error) {
	patience := a.wait
	if a.tries {
		patience = answerTimeout
	}
	timer := time.NewTimer(patience - min(patience, time.Since(x.began)))
	defer timer.Stop()
	var next <-chan time.Time
	if each != nil && !a.tries {
		next = time.After(0)
	}
	for {
		select {
		case <-w.done:
			switch {
			case w.err == nil:
				return w.lease, nil
			case errors.Is(w.err, client.ErrNotAcquired):
				return nil, x.notAcquired()
			case x.api.ctx.Err() != nil:
				return nil, errClosing
			case errors.Is(w.err, context.Canceled) && x.s.ctx.Err() != nil:
				return nil, context.Cause(x.s.ctx)
			case errors.Is(w.err, context.Canceled):
				return nil, errAborted
			}
			return nil, w.err
		case <-newest:
			return nil, errAborted
		case <-x.s.ctx.Done():
			if x.api.ctx.Err() != nil {
				return nil, errClosing
			}
			return nil, context.Cause(x.s.ctx)
		case <-x.r.Context().Done():
			x.s.absent(x.name, w, newest)
			return nil, errGone
		case <-next:
			again, err := each()
			if err != nil {
				return nil, err
			}
			next = time.After(again)
		case <-timer.C:
			if a.tries {
				return nil, problemf(http.StatusGatewayTimeout, "outcome_unknown",
					"the cluster did not answer within %s; repeat the request", answerTimeout)
			}
			return nil, nil
		}
	}
}

// absent gives the caller that hung up a while to come again.
func (s *session) absent(name string, w *waiting, newest chan struct{}) {
	time.AfterFunc(returnTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		h := s.names[name]
		switch {
		case h == nil || h.newest != newest: // it has come
		case h.wait == w:
			w.giveUp()
			h.wait = nil
		case h.lease != nil && h.lease == w.lease:
			go s.giveBack(h.lease)
			h.lease = nil
		}
	})
}

// change has a lease that is held be as a repeat says.
func (x *call) change(l *client.Lease, a *set) error {
	if a.count < l.Count() {
		if err := l.Reduce(x.ctx, a.count); err != nil {
			return err
		}
	}
	x.s.mu.Lock()
	h := x.s.heldOf(x.name)
	same := h.lease == l && bytes.Equal(h.set.data, a.data)
	x.s.mu.Unlock()
	if !same {
		if err := l.UpdateData(x.ctx, a.data); err != nil {
			return err
		}
		x.s.mu.Lock()
		if h.lease == l {
			h.set = a
		}
		x.s.mu.Unlock()
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
	p := problemf(http.StatusConflict, notAcquired, "it is held; give wait to wait for it, or try again later")
	p.more = document{}
	x.describeQueue(p.more)
	return p
}

// maxHolders are named in a refusal.
const maxHolders = 10

// describeQueue adds who holds a name, and the session's place in the queue, as far as can be read
// quickly: an answer does not depend on it.
func (x *call) describeQueue(d document) {
	ctx, cancel := context.WithTimeout(x.r.Context(), time.Second)
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

// releaseLock releases, or leaves the queue.
func releaseLock(x *call) error {
	x.s.mu.Lock()
	h := x.s.heldOf(x.name)
	delete(x.s.names, x.name)
	if h.newest != nil {
		close(h.newest)
	}
	w := h.wait
	if w != nil {
		w.giveUp()
	}
	x.s.mu.Unlock()
	if w != nil {
		select {
		case <-w.done:
		case <-x.ctx.Done():
			return x.ctx.Err()
		}
	}
	released, err := x.s.native.Release(x.ctx, x.name)
	if err != nil {
		return err
	}
	return x.report(http.StatusOK, document{"released": released || w != nil})
}
