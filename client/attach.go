package client

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/client/sessionstate"
	"github.com/signalbox-dev/signalbox/protocol"
)

func randomKey(b []byte) {
	_, _ = crand.Read(b) // it never fails: the process dies first
}

// randomNonce tells this holder of a session from others that have its key.
func randomNonce() uint64 {
	var b [8]byte
	randomKey(b[:])
	return max(1, binary.BigEndian.Uint64(b[:]))
}

// createID makes every sending of a start the same start.
type createID [protocol.KeyLen]byte

func newCreateID() (id createID) {
	randomKey(id[:])
	return id
}

// startAtPath starts the session on the node's path: by the start that went out with the hello, if
// there is one; by one request to a server that resolves the path; and else, or if anything is
// wrong with that, by the id of the node, which is asked for first.
func (s *Session) startAtPath(ctx context.Context, first *helloStart) error {
	var id createID
	var started, sent bool
	var err error
	byPath := true
	if first != nil {
		id = first.id
		started, sent, byPath, err = first.outcome(ctx)
	}
	if byPath {
		id = newCreateID()
		started, sent, err = s.startByPath(ctx, id)
	}
	if started || err != nil {
		return err
	}
	var unanswered *createID
	if sent {
		unanswered = &id
	}
	if err := s.resolveNode(ctx); err != nil {
		if sent && !answered(err) {
			s.stopUnansweredStart(id)
		}
		return err
	}
	return s.start(ctx, unanswered)
}

// resolveNode asks for the node of a session that only knows its path.
func (s *Session) resolveNode(ctx context.Context) error {
	info, err := s.c.resolve(ctx, s.node.path)
	if err == nil {
		s.setNode(nodeOf(s.c, s.node.path, info))
	}
	return err
}

func (s *Session) setNode(n Node) {
	s.node, s.requestedTimeout = n, sessionstate.Enlarge(s.opts.timeout, n.grace)
}

// startByPath sends one start that has the node's path in place of its id. That saves the round
// trip for the node, and is done where nothing else needs the node's settings first: the cluster
// has one tier, and mayStartByPath. sent says that the start was sent and not answered. An error
// ends the session.
func (s *Session) startByPath(ctx context.Context, id createID) (started, sent bool, err error) {
	tier, t := s.c.routes.Load().onlyTier()
	if t == nil || !s.mayStartByPath() {
		return false, false, nil
	}
	bucket := protocol.HomeBucket(id, t.buckets)
	cn, shard, err := s.c.connToBucket(ctx, tier, bucket)
	if err != nil || cn.hello.Features&protocol.FeatureStartByPath == 0 {
		return false, false, nil
	}
	s.epoch = 1
	req := s.startRequest(id)
	req.Path = s.node.path
	var reply protocol.SessionReply
	at := s.clockBeforeStart()
	in, err := cn.roundTrip(ctx, protocol.KindSessionStart, shard, uint64(bucket), req, &reply)
	if err != nil || reply.Node == 0 {
		return false, in && !answered(err), nil
	}
	return true, false, s.startedByPath(at, cn, &reply)
}

// mayStartByPath says whether a start may have the path: it is one, and no grace period is so long
// that the timeout must be raised for it.
func (s *Session) mayStartByPath() bool {
	const longest = protocol.MaxGracePeriod * time.Millisecond
	return protocol.ValidatePath(s.node.path) == nil && sessionstate.Enlarge(s.opts.timeout, longest) == s.opts.timeout
}

// startedByPath takes the node's settings from the reply, and activates the session.
func (s *Session) startedByPath(sent time.Duration, on *conn, reply *protocol.SessionReply) error {
	s.setNode(Node{
		c: s.c, id: reply.Node, tier: protocol.SessionTier(reply.Session), path: s.node.path,
		relaxed: reply.ReadConsistency == protocol.Relaxed, grace: millis.Duration(reply.Grace),
	})
	return s.activate(sent, on, reply, false)
}

func (s *Session) startRequest(id createID) *protocol.SessionStart {
	return &protocol.SessionStart{
		Node: s.node.id, CreateID: id[:], Key: s.key[:], Timeout: uint64(s.requestedTimeout.Milliseconds()),
		Description: s.opts.description, Nonce: s.nonce,
	}
}

// start makes the session at its home. unanswered is the id of a start of it that was sent and not
// answered, nil if there is none: this is the same one then.
func (s *Session) start(ctx context.Context, unanswered *createID) error {
	t, err := s.c.tierOf(ctx, s.node.tier)
	if err != nil {
		return err
	}
	s.epoch = 1
	var id createID
	var repeated bool
	for {
		if id = newCreateID(); unanswered != nil {
			id = *unanswered
		}
		repeated, err = s.sendStart(ctx, s.startRequest(id), protocol.HomeBucket(id, t.buckets), unanswered != nil)
		unanswered = nil
		// A start whose answer was lost may have made a session that ended before this client was
		// heard again. Nobody has seen it.
		if !repeated || !errors.Is(err, protocol.StatusSessionExpired) {
			break
		}
	}
	if err != nil && repeated && !answered(err) {
		s.stopUnansweredStart(id)
	}
	return err
}

// stopUnansweredStart stops the session of a start that is given up. It may live, on a connection
// that goes on being heard: it would stay for ever.
func (s *Session) stopUnansweredStart(id createID) {
	s.opts.onState, s.opts.onStopped = nil, nil
	s.c.run(func() {
		if s.node.id == 0 && s.resolveNode(s.c.ctx) != nil {
			return
		}
		t, err := s.c.tierOf(s.c.ctx, s.node.tier)
		if err != nil {
			return
		}
		if _, err := s.sendStart(s.c.ctx, s.startRequest(id), protocol.HomeBucket(id, t.buckets), true); err == nil {
			s.step(func(m *sessionstate.Machine, _ time.Duration) { s.end(sessionstate.Closed, ErrSessionClosed) })
		}
	})
}

// sendStart sends a start until it is answered, and activates the session. sent says that it was
// sent before.
func (s *Session) sendStart(ctx context.Context, req *protocol.SessionStart, bucket uint32, sent bool) (repeated bool, err error) {
	var reply protocol.SessionReply
	var on *conn
	var at time.Duration
	where := func(ctx context.Context) (*conn, uint64, uint64, error) {
		cn, shard, err := s.c.connToBucket(ctx, s.node.tier, bucket)
		on, at = cn, s.clockBeforeStart()
		return cn, uint64(bucket), shard, err
	}
	repeated, err = s.c.request(ctx, where, protocol.KindSessionStart, req, &reply)
	if repeated = repeated || sent; err != nil {
		return repeated, err
	}
	return repeated, s.activate(at, on, &reply, repeated)
}

// activate makes the session a live one after its start or restore was answered. If that was sent
// more than once, one attach epoch is skipped after it. The server answers the attach with the next
// epoch from memory (RELAXED), because no leader can have attached the session in between; another
// leader may have had a copy.
func (s *Session) activate(sent time.Duration, on *conn, reply *protocol.SessionReply, repeated bool) error {
	s.mu.Lock()
	s.id = reply.Session
	s.epoch = max(s.epoch, reply.Epoch)
	if repeated {
		s.epoch++
	}
	s.jumped, _ = s.c.clockJumps()
	s.m = sessionstate.Start(sent, millis.Duration(reply.Timeout), millis.Duration(reply.Grace))
	s.timer = time.AfterFunc(time.Hour, func() { s.step((*sessionstate.Machine).Tick) })
	s.mu.Unlock()
	replaced, err := s.c.register(s)
	if err != nil {
		s.timer.Stop()
		return err
	}
	if replaced != nil {
		replaced.step(func(*sessionstate.Machine, time.Duration) { replaced.end(sessionstate.TakenOver, ErrTakenOver) })
	}
	s.step(func(m *sessionstate.Machine, now time.Duration) {
		if !s.bind(on, reply) {
			m.ConnLost(now)
		}
		if wallAhead(s.c.clock)-s.startedAhead > m.Timeout()/2 {
			m.ClockJumped(s.c.clock.now())
		}
		m.Tick(now)
	})
	return nil
}

// clockBeforeStart is the time at which a start, or a restore, is sent. It notes the wall clock: a
// client without other sessions has no watchdog that sees it jump before the answer.
func (s *Session) clockBeforeStart() time.Duration {
	s.startedAhead = wallAhead(s.c.clock)
	return s.c.clock.now()
}

// bind attaches the session to a connection; false if the connection is over. mu is held.
func (s *Session) bind(cn *conn, reply *protocol.SessionReply) bool {
	v, pinged, ok := cn.addSession(s, reply.Shard, reply.Epoch, s.opts.period(millis.Duration(reply.Timeout)))
	if !ok {
		return false
	}
	if old := s.attachment; old != nil {
		old.over.Store(true)
		close(old.gone)
		if old.cn != cn {
			old.cn.removeSession(s)
		}
		s.attached = make(chan struct{})
	}
	s.attachment = &attachment{
		cn: cn, shard: reply.Shard, epoch: reply.Epoch, ticket: reply.Ticket, renewal: v, pinged: pinged, gone: make(chan struct{}),
	}
	s.attachErr = nil
	close(s.attached)
	return true
}

// detach ends the session's attachment. mu is held.
func (s *Session) detach() {
	if s.attachment == nil {
		return
	}
	s.attachment.over.Store(true)
	close(s.attachment.gone)
	s.attachment.cn.removeSession(s)
	s.attachment = nil
	s.attached = make(chan struct{})
	s.lowPriority = false
	select {
	case <-s.attachWanted: // of an earlier time
	default:
	}
}

// detachFrom detaches the session if it is attached on a connection in a way that lost describes.
func (s *Session) detachFrom(cn *conn, lost func(att *attachment) bool) {
	s.step(func(m *sessionstate.Machine, now time.Duration) {
		if s.attachment != nil && s.attachment.cn == cn && lost(s.attachment) {
			s.detach()
			m.ConnLost(now)
		}
	})
}

// connLost is called when a connection is over that the session may be attached on.
func (s *Session) connLost(cn *conn) {
	s.detachFrom(cn, func(*attachment) bool { return true })
}

// detachHome is called when the server does not know the session on the connection that it is
// attached on. It may have forgotten all sessions of the same home shard, and a pong for one must
// not renew the others.
func (s *Session) detachHome(att *attachment) {
	s.mu.Lock()
	stale := s.attachment != att
	s.mu.Unlock()
	if !stale { // else it was detached before
		att.cn.detachFromHome(att.shard)
	}
}

// reattach attaches the session again until that succeeds or the session is over.
func (s *Session) reattach() {
	s.delayAttach()
	retry := newRequestRetry()
	for {
		cn, err := s.attachOnce()
		switch {
		case err == nil:
			confirmLeases(s)
			return
		case s.Err() != nil || s.c.ctx.Err() != nil:
			return
		}
		s.c.cfg.Logger.Debug("session could not be attached", "session", s.id, "error", err)
		s.mu.Lock()
		s.attachErr = err
		s.mu.Unlock()
		s.c.waitRetry(s.ctx, s.home(), s.homeBucket(), cn, err, &retry)
	}
}

// A session that nobody waits for is attached again within attachDelayShare of its timeout, and
// maxAttachDelay: nothing can be told about its leases before.
const (
	attachDelayShare = 20
	maxAttachDelay   = time.Second
)

// delayAttach lets other sessions attach first. A planned change at a server detaches all sessions
// of some buckets, or of a whole shard, at once. Those that a call waits for attach at once; the
// others spread over a part of the time for which they may be relied on.
func (s *Session) delayAttach() {
	s.mu.Lock()
	unhurried := s.lowPriority
	s.lowPriority = false
	for e := range s.nameLocks.all {
		unhurried = unhurried && !e.locked
	}
	now := s.c.clock.now()
	most := min(s.m.Timeout()/attachDelayShare, (s.m.Deadline()-now)/attachDelayShare, maxAttachDelay)
	s.mu.Unlock()
	if unhurried && most > 0 {
		sleep(s.ctx, s.attachWanted, rand.N(most))
	}
}

// requestAttach says that a call waits for the session to be attached. mu is held.
func (s *Session) requestAttach() {
	wake(s.attachWanted)
}

func (s *Session) homeBucket() uint64 { return uint64(protocol.SessionBucket(s.id)) }

// home is the shard of the session's home bucket, 0 for unknown.
func (s *Session) home() uint64 {
	if r := s.c.routes.Load(); r != nil {
		return r.owner(s.node.tier, protocol.SessionBucket(s.id))
	}
	return 0
}

// attachOnce tries once, with an epoch higher than all that may have been applied. It returns the
// connection that it used.
func (s *Session) attachOnce() (*conn, error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return nil, s.err
	}
	limit := max(s.m.Timeout()/4, 250*time.Millisecond)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(s.ctx, limit, fmt.Errorf("%w: attach was not answered within %s", ErrUnreachable, limit))
	defer cancel()
	cn, reply, sent, err := s.sendAttach(ctx, 0)
	switch {
	case err == nil:
		s.step(func(m *sessionstate.Machine, now time.Duration) {
			if m.State() != Expired && !s.bind(cn, reply) {
				err = errConnLost
				return
			}
			m.Attached(now, sent, millis.Duration(reply.Timeout), millis.Duration(reply.Grace))
		})
	case sessionGone(err):
		s.endedByServer(err)
	case protocol.StatusOf(err) == protocol.StatusBadSession:
		s.step(func(m *sessionstate.Machine, _ time.Duration) {
			s.end(sessionstate.TakenOver, fmt.Errorf("%w (%w)", ErrTakenOver, err))
		})
	}
	return cn, err
}

func sessionGone(err error) bool {
	st := protocol.StatusOf(err)
	return st == protocol.StatusSessionExpired || st == protocol.StatusNotFound
}

// nextEpoch is an attach epoch that the session has not used.
func (s *Session) nextEpoch() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	return s.epoch
}

// sendAttach attaches once under an epoch, or, if that is 0, under the next one, unless the session
// is over. The next one is used up only if the attach may have been applied: each holder has few
// epochs if a gateway chooses them, and an outage may last for any number of tries.
func (s *Session) sendAttach(ctx context.Context, epoch uint64) (cn *conn, reply *protocol.SessionReply, sent time.Duration, err error) {
	bucket := protocol.SessionBucket(s.id)
	cn, shard, err := s.c.connToBucket(ctx, s.node.tier, bucket)
	if err != nil {
		return nil, nil, 0, err
	}
	next := epoch == 0
	s.mu.Lock()
	if next && s.err != nil {
		defer s.mu.Unlock()
		return nil, nil, 0, s.err
	}
	if next {
		s.epoch++
		epoch = s.epoch
	}
	s.mu.Unlock()
	req := &protocol.SessionAttach{
		Session: s.id, Node: s.node.id, Epoch: epoch, Key: s.key[:],
		Timeout: uint64(s.requestedTimeout.Milliseconds()), Description: s.opts.description, Nonce: s.nonce,
	}
	reply = new(protocol.SessionReply)
	sent = s.c.clock.now()
	_, err = cn.roundTrip(ctx, protocol.KindSessionAttach, shard, uint64(bucket), req, reply)
	if next && answered(err) && protocol.Retryable(err) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.epoch == epoch {
			s.epoch--
		}
	}
	return cn, reply, sent, err
}

// waitAttached is the session's attachment. It waits while there is none.
func (s *Session) waitAttached(ctx context.Context) (*attachment, error) {
	for {
		s.mu.Lock()
		att, err, attached := s.attachment, s.err, s.attached
		if att == nil {
			s.requestAttach()
		}
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if att != nil {
			return att, nil
		}
		select {
		case <-attached:
		case <-s.ctx.Done():
		case <-ctx.Done():
			return nil, markUndecided(context.Cause(ctx))
		}
	}
}

// stopAtServer tells the server that the session is over, for as long as that takes: the server
// keeps the session while a connection that it was attached on sends pings. last is its last
// attachment. What it attaches for that has one epoch, above all that the session used before: with
// an epoch for each try it would overtake another holder some day, and end the session of that one.
// A client whose connections are refused sends no pings: the session ends with its timeout.
func (s *Session) stopAtServer(last *attachment) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.markStopped()
	}()
	retry := backoff{base: reconnectBase, max: reconnectMax}
	bucket := s.homeBucket()
	own := uint64(0)
	for s.c.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(s.c.ctx, dialTimeout)
		var cn *conn
		var epoch uint64
		var err error
		if last != nil && !last.cn.isLost() {
			cn, epoch = last.cn, last.epoch
		} else {
			if own == 0 {
				own = s.nextEpoch()
			}
			epoch = own
			cn, _, _, err = s.sendAttach(ctx, own)
		}
		if err == nil {
			_, err = cn.roundTrip(ctx, protocol.KindSessionStop, s.home(), bucket,
				&protocol.SessionStop{Session: s.id, Epoch: epoch}, &protocol.Empty{})
			if protocol.StatusOf(err) == protocol.StatusBadSession && epoch != own {
				err = fmt.Errorf("%w: an attach overtook the stop", ErrUnreachable) // attach with a higher epoch, and stop again
			}
			last = nil
		}
		s.c.updateRoutes(ctx, s.home(), bucket, cn, err, 1)
		cancel()
		var refused *permanentError
		if err == nil || sessionGone(err) || protocol.StatusOf(err) == protocol.StatusBadSession || errors.Is(err, ErrClientClosed) ||
			errors.As(err, &refused) {
			return
		}
		sleep(s.c.ctx, nil, retry.next())
	}
}

// restore attaches the session under the next epoch.
func (s *Session) restore(ctx context.Context) error {
	cn, err := s.attachUnder(ctx, s.nextEpoch())
	if err != nil && !answered(err) && ctx.Err() != nil && cn != nil {
		// It may be attached there, and would be kept alive for nobody.
		cn.end(errors.New("a restore on it was given up"))
	}
	return err
}

// attachUnder attaches the session of another holder. All tries have one epoch and one nonce: an
// epoch for each would let a later try overtake the attach of another successor of the same saved
// state. cn is the connection of the last try.
func (s *Session) attachUnder(ctx context.Context, epoch uint64) (cn *conn, err error) {
	retry := newRequestRetry()
	var last error
	for {
		s.clockBeforeStart()
		cn, reply, sent, err := s.sendAttach(ctx, epoch)
		switch {
		case err == nil:
			return cn, s.activate(sent, cn, reply, last != nil)
		case s.c.ctx.Err() != nil:
			return nil, ErrClientClosed
		case ctx.Err() != nil:
			return cn, interrupted(ctx, last)
		case !canResend(err):
			return cn, err
		}
		last = err
		s.c.waitRetry(ctx, s.home(), s.homeBucket(), cn, err, &retry)
	}
}

func (s *Session) endedByServer(why error) {
	s.step(func(m *sessionstate.Machine, _ time.Duration) {
		s.end(sessionstate.EndedByServer, fmt.Errorf("%w (%w)", ErrSessionExpired, why))
	})
}

// takenOver is called when the server says on a connection that the session was attached elsewhere.
// If this client did so on another connection, the epoch is one that it used. If it is the
// attachment's own epoch, a start that was sent twice arrived in the wrong order. The session is
// then attached on a connection that this client gave up, and pongs on this one do not renew it any
// more.
func (s *Session) takenOver(cn *conn, epoch uint64) {
	s.step(func(m *sessionstate.Machine, now time.Duration) {
		switch {
		case epoch > s.epoch:
			s.end(sessionstate.TakenOver, ErrTakenOver)
		case s.attachment != nil && s.attachment.cn == cn && s.attachment.epoch <= epoch:
			s.detach()
			m.ConnLost(now)
		}
	})
}

// detachedByServer is called when the session's home moves or has another leader. Pongs on this
// connection no longer renew the attach. The session is attached again where the map says by then.
func (s *Session) detachedByServer(cn *conn, epoch uint64) {
	s.step(func(m *sessionstate.Machine, now time.Duration) {
		if s.attachment != nil && s.attachment.cn == cn && s.attachment.epoch <= epoch {
			s.detach()
			s.lowPriority = true
			m.ConnLost(now)
		}
	})
}
