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
func (x *call) readSet() (a *set, err error) {
	a = &set{data: x.body, key: x.query.Get("key"), labels: x.query["label"], slots: x.query["slot"], priority: -1,
		holder: x.query.Get("holder")}
	if a.count, err = x.units("count"); err != nil {
		return nil, err
	}
	if a.limit, err = x.units("limit"); err != nil {
		return nil, err
	}
	if a.ttl, err = x.duration("ttl", minTTL, gateway.MaxTimeout, minTTL); err != nil {
		return nil, err
	}
	if a.wait, err = x.duration("wait", 0, maxWait, time.Nanosecond); err != nil {
		return nil, err
	}
	if a.hold, err = x.duration("hold", time.Second, 720*time.Hour, time.Millisecond); err != nil {
		return nil, err
	}
	if text := x.query.Get("priority"); text != "" {
		if a.priority, err = strconv.Atoi(text); err != nil || a.priority < 0 || a.priority > 9 {
			return nil, badRequest("priority is %q; give 0 to 9", text)
		}
	}
	a.tries = a.wait == 0
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
		opts = append(opts, client.OnSlots(a.slots...))
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
	absent *time.Timer   // runs while the caller that hung up may come again
	uses   int           // acquires so far
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
		if a.ttl = cmp.Or(a.ttl, streamTTL); a.ttl < minStreamTTL || a.ttl > maxStreamTTL {
			return badRequest("ttl is %s; a stream's own session can have %s to %s", a.ttl, minStreamTTL,
				maxStreamTTL)
		}
		x.r.Header.Set(sessionHeader, rand.Text())
	}
	s, err := x.session(a.ttl, a.holder)
	if err != nil {
		return err
	}
	if x.streams {
		return (&stream{x: x, s: s, own: own}).serve(a)
	}
	defer s.leave()
	for {
		l, w, newest, err := s.begin(x.name, a)
		if err != nil {
			return err
		}
		if l != nil {
			if err := x.change(s, l, a); err != nil {
				return err
			}
			return x.acquired(s, l)
		}
		if l, err = x.await(s, w, newest, a, nil); err != nil {
			return err
		}
		if l != nil && l.Held() {
			return x.acquired(s, l)
		}
		if l == nil {
			return x.waits(s)
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
	h.newest, h.uses = newest, h.uses+1
	if h.absent != nil {
		h.absent.Stop()
		h.absent = nil
	}
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
		var l *client.Lease
		var err error
		if a.tries {
			l, err = s.native.TryAcquire(ctx, name, a.options()...)
			if l == nil && err == nil {
				err = client.ErrNotAcquired
			}
		} else {
			l, err = s.native.Acquire(ctx, name, a.options()...)
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
			release, done := context.WithTimeout(s.ctx, stopTime)
			_ = l.Release(release) // it goes on in the background
			done()
		}
		close(w.done)
	}()
	return w
}

// await waits for an acquire. Without a lease and an error it waits still. each, if not nil, is
// called meanwhile, and says when it is to be called again.
func (x *call) await(s *session, w *waiting, newest chan struct{}, a *set,
	each func() (time.Duration, error)) (*client.Lease, error) {
	patience := a.wait
	if a.tries {
		patience = answerTimeout
	}
	timer := time.NewTimer(patience - min(patience, time.Since(x.began)))
	defer timer.Stop()
	next := time.NewTimer(0)
	defer next.Stop()
	if each == nil || a.tries {
		next.Stop()
	}
wait:
	for {
		select {
		case <-w.done:
			return x.outcome(s, w)
		case <-newest:
			return nil, errAborted
		case <-s.ctx.Done():
			if x.api.ctx.Err() != nil {
				return nil, errClosing
			}
			return nil, context.Cause(s.ctx)
		case <-x.r.Context().Done():
			s.absent(x.name, w)
			return nil, errGone
		case <-next.C:
			again, err := each()
			if err != nil {
				return nil, err
			}
			next.Reset(again)
		case <-timer.C:
			break wait
		}
	}
	select {
	case <-w.done:
		return x.outcome(s, w)
	default:
	}
	if a.tries {
		return nil, problemf(http.StatusGatewayTimeout, "outcome_unknown",
			"the cluster did not answer within %s; repeat the request", answerTimeout)
	}
	return nil, nil
}

// outcome is how an acquire ended.
func (x *call) outcome(s *session, w *waiting) (*client.Lease, error) {
	switch {
	case w.err == nil:
		return w.lease, nil
	case errors.Is(w.err, client.ErrNotAcquired):
		return nil, x.notAcquired(s)
	case x.api.ctx.Err() != nil:
		return nil, errClosing
	case errors.Is(w.err, context.Canceled) && s.ctx.Err() != nil:
		return nil, context.Cause(s.ctx)
	case errors.Is(w.err, context.Canceled):
		return nil, errAborted
	}
	return nil, w.err
}

// absent gives the caller that hung up a while to come again.
func (s *session) absent(name string, w *waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.names[name]
	if h == nil || h.wait != w && (h.lease == nil || h.lease != w.lease) {
		return
	}
	uses := h.uses
	h.absent = time.AfterFunc(returnTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if h.uses != uses {
			return // it has come
		}
		if h.wait == w {
			w.giveUp()
			h.wait = nil
			return
		}
		if l := h.lease; l != nil && l == w.lease {
			h.lease = nil
			go func() {
				ctx, cancel := context.WithTimeout(s.ctx, stopTime)
				defer cancel()
				_ = l.Release(ctx)
			}()
		}
	})
}

// change has a lease that is held be as a repeat says.
func (x *call) change(s *session, l *client.Lease, a *set) error {
	if a.count < l.Count() {
		if err := l.Reduce(x.ctx, a.count); err != nil {
			return err
		}
	}
	s.mu.Lock()
	var data []byte
	if h := s.names[x.name]; h != nil && h.lease == l {
		data = h.set.data
	}
	s.mu.Unlock()
	if !bytes.Equal(a.data, data) {
		if err := l.UpdateData(x.ctx, a.data); err != nil {
			return err
		}
		s.mu.Lock()
		if h := s.names[x.name]; h != nil && h.lease == l {
			now := *h.set
			now.data = a.data
			h.set = &now
		}
		s.mu.Unlock()
	}
	if a.hold > 0 {
		if err := l.Extend(x.ctx, a.hold); err != nil && !errors.Is(err, client.ErrPreconditionFailed) {
			return err
		}
	}
	return nil
}

// acquired answers with a lease.
func (x *call) acquired(s *session, l *client.Lease) error {
	d, err := x.grant(s, l)
	if err != nil {
		return err
	}
	x.w.Header().Set(tokenHeader, strconv.FormatUint(l.Token(), 10))
	return x.write(http.StatusOK, d)
}

// grant describes a lease that is held.
func (x *call) grant(s *session, l *client.Lease) (document, error) {
	d := document{"state": "acquired", "token": l.Token(), "count": count(l.Count()), "holder": s.holder,
		"preempt": isPreempted(l)}
	setBytes(d, "name", []byte(x.name))
	if slots := l.Slots(); len(slots) > 0 {
		d["slots"] = slots
	}
	if until := l.Until(); !until.IsZero() {
		d["ends_in_ms"] = max(0, time.Until(until).Milliseconds())
	}
	if err := x.belief(s, d, l); err != nil {
		return nil, err
	}
	if !l.Held() {
		return nil, errLost
	}
	return d, nil
}

// waits answers that the place in the queue is kept.
func (x *call) waits(s *session) error {
	d := document{"state": "waiting"}
	setBytes(d, "name", []byte(x.name))
	x.describeQueue(s, d)
	if err := x.belief(s, d); err != nil {
		return err
	}
	return x.write(http.StatusAccepted, d)
}

// notAcquired says who holds it.
func (x *call) notAcquired(s *session) error {
	p := problemf(http.StatusConflict, notAcquired, "it is held; give wait to wait for it, or try again later")
	p.more = document{}
	x.describeQueue(s, p.more)
	return p
}

// maxHolders are named in a refusal.
const maxHolders = 10

// describeQueue adds who holds a name, and the session's place in the queue, as far as can be read
// quickly: an answer does not depend on it.
func (x *call) describeQueue(s *session, d document) {
	ctx, cancel := context.WithTimeout(x.r.Context(), time.Second)
	defer cancel()
	sem, err := describe(ctx, s.native.Node(), x.name)
	if err != nil {
		return
	}
	d["holders"] = owners(sem.Owners[:min(len(sem.Owners), maxHolders)], nil)
	for i, w := range sem.Waiters {
		if w.Session == s.native.ID() {
			d["position"] = i + 1
		}
	}
}

// releaseLock releases, or leaves the queue.
func releaseLock(x *call) error {
	s, err := x.session(0, "")
	if err != nil {
		return err
	}
	defer s.leave()
	s.mu.Lock()
	h := s.names[x.name]
	var w *waiting
	if h != nil {
		if h.newest != nil {
			close(h.newest)
			h.newest = nil
		}
		h.uses++
		if w = h.wait; w != nil {
			w.giveUp()
			h.wait = nil
		}
		delete(s.names, x.name)
	}
	s.mu.Unlock()
	if w != nil {
		select {
		case <-w.done:
		case <-x.ctx.Done():
			return x.ctx.Err()
		}
	}
	released, err := s.native.Release(x.ctx, x.name)
	if err != nil {
		return err
	}
	d := document{"released": released || w != nil}
	if err := x.belief(s, d); err != nil {
		return err
	}
	return x.write(http.StatusOK, d)
}

// adopt makes leases of what a session held at the gateway before. An acquire of the same count is
// answered at once.
func (s *session) adopt(ctx context.Context, n *client.Node, native *client.Session) error {
	for info, err := range n.List(ctx, "", client.OfSession(native.ID()), client.ReadConsistency(client.Strict)) {
		if err != nil {
			return err
		}
		if info.Waiting || strings.HasPrefix(info.Name, client.ConfigPrefix) {
			continue
		}
		sem, err := n.Describe(ctx, info.Name, client.IncludeOwners(), client.AfterToken(info.Token-1),
			client.MaxItems(1),
			client.ReadConsistency(client.Strict))
		if errors.Is(err, client.ErrNotFound) || err == nil &&
			(len(sem.Owners) == 0 || sem.Owners[0].Session != native.ID()) {
			continue
		}
		if err != nil {
			return err
		}
		o := sem.Owners[0]
		a := &set{ephemeral: info.Ephemeral, count: o.Count, priority: -1, key: o.Key, data: o.Data}
		if sem.Options != nil && sem.Options.Policy == client.PolicyPriority {
			a.priority = o.Priority
		}
		l, err := native.TryAcquire(ctx, info.Name, a.options()...)
		switch {
		case err != nil:
			return err
		case l == nil:
		case l.Token() != o.Token: // it was taken away meanwhile, and this is another grant
			if err := l.Release(ctx); err != nil {
				return err
			}
		default:
			s.names[info.Name] = &held{set: a, lease: l}
		}
	}
	return nil
}
