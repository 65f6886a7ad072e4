package httpapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/gateway"
)

const (
	minTTL = time.Second
	// extraTTL is how long a session is kept beyond what was said: a caller that counts from the
	// answer is late by the answer's delay.
	extraTTL = time.Second
	stopTime = 10 * time.Second
	// maxOpenTries is how often a session is looked up while other gateways start or move it.
	maxOpenTries = 6
)

// callers are those with one token.
type callers struct {
	api      *API
	conn     *gateway.Connection[*callers]
	sessions atomic.Int64
	checking atomic.Bool
}

// checkToken finds out whether sessions are detached because their token was revoked, or the right
// to read their node was taken away, and ends the waits and streams of their callers then.
func (c *callers) checkToken() {
	if !c.checking.CompareAndSwap(false, true) {
		return
	}
	defer c.checking.Store(false)
	ctx, cancel := context.WithTimeout(c.api.ctx, answerTimeout)
	defer cancel()
	_, err := c.conn.Client.ServerInfo(ctx)
	if gateway.IsUnauthenticated(err) {
		err = problemf(http.StatusUnauthorized, "unauthenticated", "the token is not valid any more")
	} else if err != nil {
		return
	}
	c.api.mu.Lock()
	sessions := slices.Collect(maps.Values(c.api.sessions))
	c.api.mu.Unlock()
	refused := make(map[string]error) // by node
	for _, s := range sessions {
		if s.callers != c {
			continue
		}
		if _, known := refused[s.node]; !known && err == nil {
			_, refused[s.node] = c.conn.Client.Node(ctx, s.node)
		}
		if why := cmp.Or(err, refused[s.node]); err != nil || errors.Is(why, client.ErrForbidden) {
			s.end(why)
		}
	}
}

// session is a caller's session: one native session, by the caller's name for it.
//
// Invariant: it is in API.sessions until it has ended, or another one of its name replaced it.
type session struct {
	sessionName
	api     *API
	callers *callers
	holder  string

	ready  chan struct{} // closed when native or err is set
	native *client.Session
	ttl    time.Duration
	err    error

	ctx context.Context // ends with the session, or when its token was revoked
	end context.CancelCauseFunc

	mu    sync.Mutex
	calls int         // under way
	timer *time.Timer // runs while there is none
	ended bool        // nothing begins any more: it is being stopped
	names map[string]*held
}

// sessionName is who calls, where, and the caller's name for its session.
type sessionName struct{ identity, node, name string }

// ids derives what the cluster knows a session by.
func (n sessionName) ids() (create gateway.CreateID, key gateway.Key) {
	sum := func(label string) [sha256.Size]byte {
		return sha256.Sum256(fmt.Appendf(nil, "signalbox http %s\x00%d %s%d %s%s", label, len(n.identity), n.identity,
			len(n.node), n.node, n.name))
	}
	a, b := sum("create id"), sum("key")
	return gateway.CreateID(a[:16]), gateway.Key(b[:16])
}

// open finds the session of the request, or with ttl starts one. The caller calls leave once the
// answer is written.
func (x *call) open(ttl time.Duration, holder string) error {
	name := x.r.Header.Get(sessionHeader)
	if len(name) < 8 || len(name) > 128 {
		return badRequest("the header Signalbox-Session has %d characters; give the session a name of 8 to 128, "+
			"made once, such as by uuidgen", len(name))
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
		return badRequest("the header Signalbox-Session has a character that is not visible ASCII")
	}
	s, err := x.api.take(x, sessionName{x.conn.Identity, x.node, name}, ttl, holder)
	if err != nil {
		return err
	}
	select {
	case <-s.ready:
	case <-x.ctx.Done():
		s.leave()
		return unavailable("the cluster did not answer within %s; repeat the request", answerTimeout)
	}
	switch {
	case s.err != nil:
		return s.err
	case ttl != 0 && s.ttl != ttl:
		err = badRequest("the session has a ttl of %s, not %s: repeat it with the same ttl, "+
			"or another program uses this name", s.ttl, ttl)
	case holder != "" && s.holder != holder:
		err = badRequest("the session's holder is %q, not %q: repeat it with the same holder, "+
			"or another program uses this name", s.holder, holder)
	default:
		x.s = s
		return nil
	}
	s.leave()
	return err
}

// take counts a call on a session, which begins to be opened if this gateway does not have it, or
// has it with another token: rights are those of the token that is shown.
func (a *API) take(x *call, name sessionName, ttl time.Duration, holder string) (*session, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.sessions[name]
	if s := before; s != nil && s.callers == x.conn.State {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ended {
			return nil, errExpired
		}
		s.calls++
		if s.timer != nil {
			s.timer.Stop()
		}
		return s, nil
	}
	switch {
	case len(a.sessions) >= maxSessions:
		return nil, problemf(http.StatusServiceUnavailable, "overloaded",
			"this gateway has %d sessions, the most it may; use another one", maxSessions)
	case a.own[name.identity] >= maxOwn:
		return nil, problemf(http.StatusTooManyRequests, "overloaded",
			"%d sessions of this identity are here, the most that may be; end some first", maxOwn)
	}
	if before != nil {
		a.remove(before)
	}
	if holder == "" {
		holder = name.identity + " at " + x.r.RemoteAddr
	}
	s := &session{sessionName: name, api: a, callers: x.conn.State, ttl: ttl, holder: holder,
		ready: make(chan struct{}), calls: 1, names: make(map[string]*held)}
	s.ctx, s.end = context.WithCancelCause(a.ctx)
	a.sessions[name] = s
	a.own[s.identity]++
	s.callers.sessions.Add(1)
	go s.open(x.conn.Client)
	return s, nil
}

// remove forgets a session. The lock is held.
func (a *API) remove(s *session) {
	if a.sessions[s.sessionName] == s {
		delete(a.sessions, s.sessionName)
		if a.own[s.identity]--; a.own[s.identity] == 0 {
			delete(a.own, s.identity)
		}
		s.callers.sessions.Add(-1)
	}
}

// open finds or starts the native session. It goes on when the request has ended: what it does may
// be carried out, and then the session must end with its ttl.
func (s *session) open(c *client.Client) {
	native, err := s.attach(c)
	s.native, s.err = native, err
	if err == nil {
		context.AfterFunc(native.Context(), s.over)
	} else {
		s.api.mu.Lock()
		s.api.remove(s)
		s.api.mu.Unlock()
		s.end(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.ready)
	if err == nil && s.calls == 0 {
		s.wait(s.ttl + extraTTL)
	}
}

func (s *session) attach(c *client.Client) (*client.Session, error) {
	asked, cancel := context.WithTimeout(s.ctx, answerTimeout)
	defer cancel()
	n, err := c.Node(asked, s.node)
	if err != nil {
		return nil, err
	}
	create, key := s.ids()
	starts := s.ttl != 0
	for try, start := 1, starts; ; try++ {
		var native *client.Session
		if start { // mostly there is none yet
			native, err = gateway.StartAs(s.ctx, n, create, key, s.options()...)
			start = false
		} else {
			native, err = s.move(asked, n, create, key)
			start = starts && errors.Is(err, client.ErrSessionExpired) // it ended since it was in the way
		}
		// It is a bad session if another gateway has started it, or moves it at the same time.
		if !start && !errors.Is(err, client.ErrBadSession) || try == maxOpenTries {
			return native, err
		}
	}
}

// move attaches the session, which another gateway has served.
func (s *session) move(
	ctx context.Context, n *client.Node, create gateway.CreateID, key gateway.Key,
) (*client.Session, error) {
	found, err := gateway.Find(ctx, n, create)
	if err != nil {
		return nil, err
	}
	s.ttl, s.holder = gateway.Timeout(found.Timeout), found.Description
	native, err := gateway.Attach(s.ctx, n, found.Next(key), s.options()...)
	if err != nil {
		return nil, err
	}
	s.api.counts.moves.Add(1)
	if err := s.adopt(ctx, native); err != nil { // it ends if its caller does not come again
		time.AfterFunc(s.ttl+extraTTL, func() { stop(native) })
		return nil, err
	}
	return native, nil
}

func (s *session) options() []client.SessionOption {
	return []client.SessionOption{
		client.Timeout(gateway.NativeTimeout(s.ttl)), client.KeepAlive(gateway.KeepAlive(s.ttl)), client.Description(s.holder),
		client.OnState(func(state client.State) {
			if state == client.Detached {
				go s.callers.checkToken()
			}
		}),
	}
}

// adopt makes leases of what the session held at another gateway. An acquire of the same count is
// answered at once.
func (s *session) adopt(ctx context.Context, native *client.Session) error {
	for l, err := range gateway.Leases(ctx, native, gateway.IgnorePreemption()) {
		if err != nil {
			return err
		}
		s.names[l.Name()] = &held{set: &set{ephemeral: l.Ephemeral, data: l.Data}, lease: l.Lease}
	}
	return nil
}

// over is called when the native session has ended, or belongs to another gateway.
func (s *session) over() {
	s.api.mu.Lock()
	s.api.remove(s)
	s.api.mu.Unlock()
	s.end(s.native.Err())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// leave is called when the answer to a call is written: the session lives for its ttl from now on.
func (s *session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls--
	select {
	case <-s.ready:
		if s.calls == 0 && s.err == nil && !s.ended {
			s.wait(s.ttl + extraTTL)
		}
	default: // open does it
	}
}

// leaveFor is leave of a stream whose own the session is: it lives for d from now on. With 0 it has
// ended then.
func (s *session) leaveFor(d time.Duration) {
	s.mu.Lock()
	s.calls--
	if d > 0 && !s.ended {
		s.wait(d)
	}
	s.mu.Unlock()
	switch {
	case d > 0:
	case s.ctx.Err() != nil && s.api.ctx.Err() == nil: // the cluster may not hear of it: nobody waits for that
		go s.expire()
	default:
		s.expire()
	}
}

// wait has the session end after d unless a call comes. mu is held.
func (s *session) wait(d time.Duration) {
	if s.timer == nil {
		s.timer = time.AfterFunc(d, s.expire)
	} else {
		s.timer.Reset(d)
	}
}

// expire stops a session whose caller did not come again.
func (s *session) expire() {
	s.mu.Lock()
	if s.calls > 0 || s.ended {
		s.mu.Unlock()
		return
	}
	s.ended = true
	s.mu.Unlock()
	stop(s.native)
}

// stop ends a native session. A stop of the gateway does not cut it short.
func stop(native *client.Session) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	_ = native.Close(ctx) // it goes on in the background after an error
}

// believe is how long a caller may rely on an answer of now, in milliseconds: on leases, which may
// have bounds, and on the session.
func (s *session) believe(leases ...*client.Lease) (int64, error) {
	d := min(s.ttl, s.native.Remaining())
	for _, l := range leases {
		if until := l.Until(); !until.IsZero() {
			d = min(d, time.Until(until))
		}
	}
	if left := d.Milliseconds(); left > 0 {
		return left, nil
	}
	if err := s.native.Err(); err != nil {
		return 0, err
	}
	return 0, unavailable("the cluster does not renew the session now; what you were told before stands")
}

// belief adds to an answer how long it may be relied on.
func (x *call) belief(d document, leases ...*client.Lease) error {
	left, err := x.s.believe(leases...)
	d["session_id"], d["expires_in_ms"], d["waited_ms"], d["node"] = idText(x.s.native.ID()), left, x.waited(), x.node
	return err
}

// leases are those that the session is known to hold.
func (s *session) leases() (list []*client.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.names {
		if h.lease != nil && h.lease.Held() {
			list = append(list, h.lease)
		}
	}
	return list
}

// keepAlive renews the session, and reports whether it holds what the caller believes.
func keepAlive(x *call) error {
	names, preempt := x.query["holding"], false
	if len(names) > 16 {
		return badRequest("holding comes %d times; 16 are allowed", len(names))
	}
	for _, name := range names {
		x.s.mu.Lock()
		h := x.s.names[name]
		lost := h == nil || h.lease == nil || !h.lease.Held()
		preempt = preempt || !lost && isPreempted(h.lease)
		x.s.mu.Unlock()
		if lost {
			p := *errLost
			p.more = document{"name": name}
			return &p
		}
	}
	return x.report(http.StatusOK, document{"state": "alive", "preempt": preempt}, x.s.leases()...)
}

// getSession lists what the session holds and waits for.
func getSession(x *call) error {
	d := document{"holder": x.s.holder, "ttl_ms": x.s.ttl.Milliseconds()}
	lists := map[bool][]document{true: {}, false: {}} // by whether it waits
	of := client.OfSession(x.s.native.ID())
	for info, err := range x.s.native.Node().List(x.ctx, "", of, client.ReadConsistency(client.Strict)) {
		if err != nil {
			return err
		}
		item := document{"token": info.Token, "count": count(info.Count)}
		setBytes(item, "name", []byte(info.Name))
		lists[info.Waiting] = append(lists[info.Waiting], item)
	}
	d["holds"], d["waits"] = lists[false], lists[true]
	return x.report(http.StatusOK, d, x.s.leases()...)
}

// endSession stops the session: what it holds is free when the answer comes.
func endSession(x *call) error {
	x.s.mu.Lock()
	x.s.ended = true
	x.s.mu.Unlock()
	if err := x.s.native.Close(x.ctx); err != nil && !errors.Is(err, client.ErrSessionExpired) {
		return err
	}
	return x.write(http.StatusOK, document{"ended": true})
}
