package httpapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/gateway"
	"github.com/signalbox-dev/signalbox/protocol/boottime"
	"github.com/signalbox-dev/signalbox/server/httpapi/machine"
)

const (
	minTTL   = time.Second
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

// tokenEnds ends the waits and streams of callers whose platform's token expires. Their sessions go
// on with the next token.
func (c *callers) tokenEnds() {
	for _, s := range c.all() {
		s.end(errTokenEnds)
	}
}

// all are the sessions that these callers use.
func (c *callers) all() (list []*session) {
	c.api.mu.Lock()
	defer c.api.mu.Unlock()
	for _, s := range c.api.sessions {
		if s.callers == c {
			list = append(list, s)
		}
	}
	return list
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
	refused := make(map[string]error) // by node
	for _, s := range c.all() {
		if _, known := refused[s.node]; !known && err == nil {
			_, refused[s.node] = c.conn.Client.Node(ctx, s.node)
		}
		if why := cmp.Or(err, refused[s.node]); err != nil || errors.Is(why, client.ErrForbidden) {
			s.refuse(problemOf(why))
		}
	}
}

// refuse ends the waits and streams of the session's caller, whose token does not count any more.
func (s *session) refuse(why *problem) {
	select {
	case <-s.ready:
		if s.err == nil {
			why = why.because(&client.Loss{Cause: "refused", Since: gateway.Since(s.native, s.ttl), Steps: []string{why.detail},
				Advice: "send a token that is valid, of an identity with the right to use the node"})
		}
	default:
	}
	s.end(why)
}

// refusal is what checkToken has found, while the session is detached for it; nil: nothing.
func (s *session) refusal() error {
	p, _ := errors.AsType[*problem](context.Cause(s.ctx))
	refused := p != nil && (p.status == http.StatusUnauthorized || p.status == http.StatusForbidden)
	if refused && s.native != nil && s.native.State() == client.Detached {
		return p
	}
	return nil
}

// session is a caller's session: one native session, by the caller's name for it. The machine
// decides what its requests get.
//
// Invariant: it is in API.sessions until it is Over, or another one of its name replaced it.
type session struct {
	sessionName
	api     *API
	callers *callers
	holder  string

	ready  chan struct{} // closed when native or err is set
	native *client.Session
	ttl    time.Duration
	err    error
	// unwatch has the end of the native session end this one no more; false: it does so already.
	unwatch func() bool
	// since is when the native session began to be attached here, which confirms it for the
	// requests before that; generation is that of this attachment.
	since      time.Time
	generation uint64
	placed     atomic.Bool // it waits in queues whose places it took at another gateway
	adopting   sync.Mutex  // guards adoption
	adoption   *adoption   // under way, for requests; nil: none is

	ctx context.Context // ends with the session, or when its token was revoked
	end context.CancelCauseFunc

	mu      sync.Mutex
	machine machine.Session
	timer   *time.Timer // for the machine's next Tick
	replies map[machine.Call]chan machine.Reply
	ops     map[machine.Op]*operation
}

// step calls f with the machine, and does what follows from it. It returns when grants that are
// given back are released.
func (s *session) step(f func(m *machine.Session, now time.Duration)) {
	s.mu.Lock()
	now := boottime.Now()
	f(&s.machine, now)
	r, next := s.machine.Ready(), s.machine.Next()
	for _, reply := range r.Replies {
		if ch := s.replies[reply.Call]; ch != nil {
			ch <- reply // it has room for all that a request may get
		}
	}
	for _, op := range r.Cancel {
		s.ops[op].cancel()
	}
	switch {
	case next == 0 && s.timer != nil:
		s.timer.Stop()
	case next == 0:
	case s.timer == nil:
		s.timer = time.AfterFunc(next-now, func() { s.step((*machine.Session).Tick) })
	default:
		s.timer.Reset(next - now)
	}
	for _, back := range r.Return {
		if s.ops[back.Op] == nil {
			s.ops[back.Op] = newOperation(nil)
		}
	}
	s.mu.Unlock()
	switch {
	case r.Unrenewed != 0:
		s.unrenewed(r)
	case r.Stop:
		stop(s.native)
	}
	for _, back := range r.Return {
		s.giveBack(back.Lease.(*client.Lease))
		s.ended(back.Op, back.Name)
	}
}

// ended notes that an operation on a name has ended.
func (s *session) ended(op machine.Op, name string) {
	s.step(func(m *machine.Session, _ time.Duration) {
		close(s.ops[op].done)
		delete(s.ops, op)
		m.Ended(op, name)
	})
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
// answer is written. Meanwhile the cluster is asked who serves the session, for confirmed.
func (x *call) open(ttl time.Duration, holder string) error {
	name := x.r.Header.Get(sessionHeader)
	if name == "" {
		return badRequest("the header Signalbox-Session is missing; give the session a name of 8 to 128 characters in it, " +
			"made once, such as by uuidgen")
	}
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
	switch refusal := s.refusal(); {
	case s.err != nil:
		return s.err
	case refusal != nil: // at once: callers do not wait for long
		err = refusal
	case ttl != 0 && s.ttl != ttl:
		err = badRequest("the session has a ttl of %s, not %s: repeat it with the same ttl, "+
			"or another program uses this name", s.ttl, ttl)
	case holder != "" && s.holder != holder:
		err = badRequest("the session's holder is %q, not %q: repeat it with the same holder, "+
			"or another program uses this name", s.holder, holder)
	default:
		x.s = s
		// A release is the cluster's own word, so it mostly asks for no other.
		if x.confirm = x.began.After(s.since); x.confirm && x.route.method != http.MethodDelete {
			x.confirming = make(chan error, 1)
			go func() { x.confirming <- s.confirm(x.ctx) }()
		}
		return nil
	}
	s.leave()
	return err
}

// confirm asks the session's home who serves the session, by a read that begins with the call.
// Another gateway may have moved or ended it without this one having heard of it.
func (s *session) confirm(ctx context.Context) error {
	create, _ := s.ids()
	found, err := gateway.Find(ctx, s.native.Node(), create)
	switch generation := gateway.Generation(found.Epoch); {
	case errors.Is(err, client.ErrSessionExpired):
		select { // the session is told why it ended
		case <-s.native.Context().Done():
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
		s.noteLoss("", s.native.Err())
		s.over(errExpired)
		return errExpired.because(s.lossOf(""))
	case err != nil:
		return err
	case generation > s.generation:
		s.over(errMoved)
		return errMoved
	case generation < s.generation: // its attach is not in the log yet
		return unavailable("the cluster has not confirmed the session yet; repeat the request")
	}
	return nil
}

// confirmed waits until the cluster has said, since the request came, that this gateway serves the
// session.
func (x *call) confirmed() (err error) {
	switch {
	case !x.confirm:
		return nil
	case x.confirming != nil:
		err = <-x.confirming
	default:
		err = x.s.confirm(x.ctx)
	}
	if err != nil && x.ctx.Err() != nil { // it came at an outage, and has waited since
		ctx, cancel := context.WithTimeout(x.s.ctx, answerTimeout)
		defer cancel()
		err = x.s.confirm(ctx)
	}
	x.confirm = false
	return err
}

// stillServed is confirmed, for who was just told that there is no such lease here: it may be gone
// because another gateway serves the session since it was confirmed, and has the lease.
func (x *call) stillServed() error {
	if err := x.s.native.Err(); err != nil {
		return err
	}
	return x.confirmed()
}

// take counts a call on a session, which begins to be opened if this gateway does not have it, or
// has it with another token: rights are those of the token that is shown.
func (a *API) take(x *call, name sessionName, ttl time.Duration, holder string) (*session, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.sessions[name]
	if s := before; s != nil && s.callers == x.conn.State {
		entered := false
		s.step(func(m *machine.Session, _ time.Duration) { entered = m.Enter() })
		if !entered {
			return nil, errExpired.because(a.losses.get(name, ""))
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
	s := &session{sessionName: name, api: a, callers: x.conn.State, ttl: ttl, holder: holder, ready: make(chan struct{}),
		since: time.Now(), replies: make(map[machine.Call]chan machine.Reply), ops: make(map[machine.Op]*operation)}
	s.machine.Enter()
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
	if err != nil && problemOf(err).code == errExpired.code {
		err = errExpired.because(s.lossOf("")) // nothing else is known of it
	}
	s.native, s.err = native, err
	if err == nil {
		s.noteLoss("", nil)
		s.unwatch = context.AfterFunc(native.Context(), func() { s.over(native.Err()) })
		s.step(func(m *machine.Session, now time.Duration) { m.Started(now, s.ttl) })
	} else {
		s.over(err)
	}
	close(s.ready)
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
	next := found.Next(key)
	native, err := gateway.Attach(s.ctx, n, next, s.options()...)
	if err != nil {
		return nil, err
	}
	s.generation = gateway.Generation(next.Epoch)
	s.api.counts.moves.Add(1)
	if err := s.adopt(ctx, native); err != nil { // it ends if its caller does not come again
		time.AfterFunc(s.ttl+machine.ExtraTTL, func() { stop(native) })
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

// adopt makes leases of what the session holds and the machine does not know: it held it at another
// gateway, or was granted it since for a place in a queue that it had there. An acquire of the same
// count is answered with them.
func (s *session) adopt(ctx context.Context, native *client.Session) error {
	placed := false
	wanted := func(name string, waits bool) (wanted bool) {
		s.step(func(m *machine.Session, _ time.Duration) { wanted = !m.Knows(name) })
		placed = placed || wanted && waits
		return wanted
	}
	for l, err := range gateway.Leases(ctx, native, wanted, gateway.IgnorePreemption()) {
		if err != nil {
			return err
		}
		set := machine.Set{Ephemeral: l.Ephemeral, Count: l.Count(), Data: sha256.Sum256(l.Data)}
		s.step(func(m *machine.Session, _ time.Duration) { m.Holds(l.Name(), set, l.Lease) })
		s.watch(l.Name(), l.Lease)
	}
	s.placed.Store(placed)
	return nil
}

// adoption is an adopt for requests. It outlives them: an acquire that is given up would give back what
// the session holds.
type adoption struct {
	began time.Time
	done  chan struct{} // closed when it has ended
	err   error
}

// adoptGrants is adopt, of a session with places that it took at another gateway, that begins after the
// request.
func (x *call) adoptGrants() error {
	s := x.s
	if !s.placed.Load() {
		return nil
	}
	for {
		s.adopting.Lock()
		if s.adoption == nil {
			a := &adoption{began: time.Now(), done: make(chan struct{})}
			s.adoption = a
			go func() {
				a.err = s.adopt(s.ctx, s.native)
				s.adopting.Lock()
				s.adoption = nil
				s.adopting.Unlock()
				close(a.done)
			}()
		}
		a := s.adoption
		s.adopting.Unlock()
		select {
		case <-a.done:
		case <-x.ctx.Done():
			return context.Cause(x.ctx)
		}
		if !a.began.Before(x.began) {
			return a.err
		}
	}
}

// watch has the machine told when a lease ends.
func (s *session) watch(name string, l *client.Lease) {
	s.noteLoss(name, nil)
	context.AfterFunc(l.Context(), func() {
		s.noteLoss(name, l.Lost())
		s.step(func(m *machine.Session, _ time.Duration) { m.Lost(name, l) })
	})
}

// over is called when the native session has ended, or belongs to another gateway.
func (s *session) over(why error) {
	s.noteLoss("", why)
	s.api.mu.Lock()
	s.api.remove(s)
	s.api.mu.Unlock()
	s.end(why)
	s.step(func(m *machine.Session, _ time.Duration) { m.Close() })
}

// leave is called when the answer to a call is written: the session lives for its ttl from now on.
func (s *session) leave() {
	s.step(func(m *machine.Session, now time.Duration) { m.Leave(now, m.Life()) })
}

// unrenewed ends the session because no request has come for its life, which those that come later are told.
func (s *session) unrenewed(r machine.Ready) {
	if r.Late > time.Second { // this process stood still: the caller may have been in time, and the cluster knows
		ctx, cancel := context.WithTimeout(s.ctx, answerTimeout)
		_ = s.confirm(ctx)
		cancel()
	}
	if !s.unwatch() { // it has ended already, and has said why
		return
	}
	loss := &client.Loss{Cause: "unknown", Since: r.Unrenewed,
		Steps:  []string{fmt.Sprintf("no request renewed the session for %.1f s", r.Unrenewed.Seconds())},
		Advice: fmt.Sprintf("renew the session each third of its ttl, which is %s", s.ttl)}
	s.noteLoss("", loss)
	stop(s.native)
	s.over(errExpired.because(loss))
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

// belief adds to an answer how long it may be relied on, once the cluster has confirmed the session.
// A caller adds both times: what passes between the looks at them is not to be believed.
func (x *call) belief(d document, leases ...*client.Lease) error {
	if err := x.confirmed(); err != nil {
		return err
	}
	waited := x.waited()
	left, err := x.s.believe(leases...)
	d["session_id"], d["expires_in_ms"], d["waited_ms"], d["node"] = idText(x.s.native.ID()), left, waited, x.node
	return err
}

// leases are those that the session is known to hold.
func (s *session) leases() (list []*client.Lease) {
	s.step(func(m *machine.Session, _ time.Duration) {
		m.Leases(func(_ string, l machine.Lease) { list = append(list, l.(*client.Lease)) })
	})
	return list
}

// lease is what the session is known to hold of a name, and as what; nil: nothing. Its caller is told
// of it.
func (s *session) lease(name string) (l *client.Lease, set machine.Set) {
	s.step(func(m *machine.Session, _ time.Duration) {
		var held machine.Lease
		if held, set = m.Show(name); held != nil {
			l = held.(*client.Lease)
		}
	})
	return l, set
}

// keepAlive renews the session, and has the cluster say whether it holds what the caller believes.
func keepAlive(x *call) error {
	names := x.query["holding"]
	if len(names) > 16 {
		return badRequest("holding comes %d times; 16 are allowed", len(names))
	}
	if err := x.adoptGrants(); err != nil {
		return err
	}
	errs := make(chan error, len(names))
	var preempt atomic.Bool
	for _, name := range names {
		go func() {
			l, _ := x.s.lease(name)
			held, err := l != nil, error(nil)
			if held {
				held, err = x.stillHeld(l)
			}
			if err == nil && !held {
				p := *errLost.because(x.s.lossOf(name))
				p.more = maps.Collect(maps.All(p.more))
				p.more["name"] = name
				err = &p
			} else if err == nil && isPreempted(l) {
				preempt.Store(true)
			}
			errs <- err
		}()
	}
	var lost error
	for range names {
		lost = cmp.Or(<-errs, lost)
	}
	if err := cmp.Or(x.stillServed(), lost); err != nil { // what moved with its session is not lost
		return err
	}
	leases := x.s.leases()
	return x.report(http.StatusOK, document{"state": "alive", "preempt": preempt.Load(), "num_holds": len(leases)}, leases...)
}

// stillHeld has the cluster say whether it has a lease's grant.
func (x *call) stillHeld(l *client.Lease) (bool, error) {
	held, err := gateway.Holds(x.ctx, l)
	if err == nil && !held {
		x.s.step(func(m *machine.Session, _ time.Duration) { m.Lost(l.Name(), l) })
	}
	return held, err
}

// getSession lists what the session holds and waits for.
func getSession(x *call) error {
	x.s.step(func(m *machine.Session, _ time.Duration) { m.ShowAll() })
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

// endSession stops the session: what it holds is free when the answer comes. A gateway that the
// session has left can close it, and ends nothing. So the cluster is asked what has become of it.
func endSession(x *call) error {
	if err := x.confirmed(); err != nil {
		return err
	}
	x.s.step(func(m *machine.Session, _ time.Duration) { m.End() })
	if err := x.s.native.Close(x.ctx); err != nil && !errors.Is(err, client.ErrSessionExpired) {
		return err
	}
	create, _ := x.s.ids()
	switch _, err := gateway.Find(x.ctx, x.s.native.Node(), create); {
	case err == nil:
		return errMoved
	case !errors.Is(err, client.ErrSessionExpired):
		return err
	}
	return x.write(http.StatusOK, document{"ended": true})
}
