package client

import (
	"context"
	"fmt"

	"github.com/signalbox-dev/signalbox/client/sessionstate"
	"github.com/signalbox-dev/signalbox/protocol"
)

// requestRoute is where an answer came from. While the attachment and the connection live, events
// that follow from the answer arrive too.
type requestRoute struct {
	att        *attachment
	cn         *conn // to the master of then
	shard      uint64
	shardRoute *shardRoute // of the shard
}

// isBroken says that events about a semaphore in the bucket may have been missed: the attachment or
// the connection is over, or they come from elsewhere by now.
func (t requestRoute) isBroken(s *Session, bucket uint32) bool {
	return t.att.over.Load() || t.cn.over.Load() || s.c.routes.Load().leaseMoved(t, s.node.tier, bucket)
}

// maxBadSessions is how often in a row a request may be refused as not attached here before that is
// the answer.
const maxBadSessions = 6

// send sends a request of the session until an answer decides it: over lost connections, other
// masters and new attaches, always with the same number. Number 0 is replaced at the first sending.
// The head is filled in before each sending, then prepare is called if it is not nil. sent says
// that some sending was not answered, so an error leaves the outcome open. An error is the server's
// *protocol.Error, the session's Err, or the end of ctx.
func (s *Session) send(
	ctx context.Context, kind protocol.Kind, bucket uint32, x *requestState, m, reply protocol.Message,
) (route requestRoute, sent bool, err error) {
	route, err = s.routeRequest(ctx, bucket, x)
	if err == nil {
		var in bool
		in, err = route.cn.exchange(ctx, s, x.acquire, kind, route.shard, uint64(bucket), m, reply)
		if err == nil {
			route.recordWrite(x)
			return route, false, nil
		}
		sent = in && !answered(err)
	}
	return s.resend(ctx, kind, bucket, x, m, reply, route, sent, err)
}

// recordWrite records that a request which may have changed something was answered.
func (t requestRoute) recordWrite(x *requestState) {
	if t.shardRoute != nil && (x == nil || x.head != nil) {
		t.shardRoute.lastWrite.record(t.cn.clock.now(), t.cn.instance)
	}
}

// requestState is the session's part of a request.
type requestState struct {
	seq     uint64
	head    *protocol.Head // of the request, nil: it has none
	acquire *acquireOp     // the acquire that this is, nil: another request
	prepare func(requestRoute)
	queues  bool // it has options, which an older server would ignore

	// The connection that an acquire was sent on; nil: none, or several.
	sentVia       *conn
	sentOnSeveral bool   // several
	after         uint64 // of a release: the acquire that it undoes was sent on sentVia, and must not arrive behind it
}

func (x *requestState) recordConn(cn *conn) {
	if x.acquire == nil {
		return
	}
	x.acquire.sendings++
	if x.sentVia != nil && x.sentVia != cn {
		x.sentOnSeveral = true
	}
	x.sentVia = cn
	if x.sentOnSeveral {
		x.sentVia = nil
	}
}

// errEarlierUnanswered: numbers before that of an acquire which is to be undone are open still.
var errEarlierUnanswered = protocol.Errorf(protocol.StatusUnavailable,
	"requests of the session that were sent earlier are not answered yet")

// ordered says whether a request may be sent on a connection now: nothing that it undoes can arrive
// after it.
func (s *Session) ordered(cn *conn, x *requestState) bool {
	return x.after == 0 || x.sentVia == cn || x.head.Low > x.after
}

// resend continues send after the first sending failed.
func (s *Session) resend(
	ctx context.Context, kind protocol.Kind, bucket uint32, x *requestState, m, reply protocol.Message,
	route requestRoute, sent bool, err error,
) (requestRoute, bool, error) {
	retry := newRequestRetry()
	refused := 0
	var last error
	for {
		switch {
		case s.endErr() != nil:
			return route, sent, markUndecided(s.endErr())
		case ctx.Err() != nil && !answered(err):
			return route, sent, interrupted(ctx, s.waitReason(last))
		}
		last = err
		switch st := protocol.StatusOf(err); {
		case st == protocol.StatusBadSession && refused < maxBadSessions && !isFenced(err):
			refused++
			s.handleBadSession(route)
			sleep(ctx, s.ctx.Done(), retry.next())
		case st == protocol.StatusSessionExpired:
			s.endedByServer(err)
			if sent {
				return route, sent, markUndecided(s.endErr()) // it answers this sending, and not the one before
			}
			return route, sent, s.endErr()
		case canResend(err):
			s.waitRetry(ctx, route.shard, bucket, route.cn, err, &retry)
		default:
			return route, sent, err
		}
		if ctx.Err() != nil && s.endErr() == nil {
			return route, sent, interrupted(ctx, err)
		}
		if route, err = s.routeRequest(ctx, bucket, x); err == nil {
			var in bool
			in, err = route.cn.exchange(ctx, s, x.acquire, kind, route.shard, uint64(bucket), m, reply)
			if err == nil {
				route.recordWrite(x)
				return route, false, nil
			}
			sent = sent || in && !answered(err)
		}
	}
}

// waitReason is what the session waits for: the last error of a request, or of its last attach
// while it is not attached.
func (s *Session) waitReason(last error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last == nil && s.attachment == nil && s.attachErr != nil {
		return fmt.Errorf("session is not attached: %w", s.attachErr)
	}
	return last
}

// endErr is why the session is over, or nil. A session whose deadline has passed is over, however
// late the timer is.
func (s *Session) endErr() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.stepLocked((*sessionstate.Machine).Tick)
	}
	return s.err
}

// routeRequest finds the connection for a bucket, makes the session known on it, and fills in the
// session's part of the request.
func (s *Session) routeRequest(ctx context.Context, bucket uint32, x *requestState) (requestRoute, error) {
	s.mu.Lock()
	att, err := s.attachment, s.err
	s.assignSeq(x)
	s.mu.Unlock()
	if err != nil {
		return requestRoute{}, err
	}
	if att == nil {
		if att, err = s.waitAttached(ctx); err != nil {
			return requestRoute{}, err
		}
		s.mu.Lock()
		s.assignSeq(x) // low may have risen
		s.mu.Unlock()
	}
	cn, shard, err := s.connToBucket(ctx, bucket)
	if err != nil {
		return requestRoute{shard: shard}, err
	}
	if x.queues && cn.hello.Features&protocol.FeatureQueues == 0 {
		return requestRoute{shard: shard}, errNoQueues
	}
	if !s.ordered(cn, x) {
		return requestRoute{shard: shard}, errEarlierUnanswered
	}
	if cn != att.cn {
		if err := s.present(ctx, cn, att); err != nil {
			return requestRoute{cn: cn, shard: shard}, err
		}
	}
	route := requestRoute{att: att, cn: cn, shard: shard,
		shardRoute: s.c.routes.Load().forShard(shard, s.node.tier, bucket)}
	x.recordConn(cn)
	if x.prepare != nil {
		x.prepare(route)
	}
	return route, nil
}

// connToBucket is cluster.connToBucket for a request of the session, which nobody waits for any
// more when the session has ended.
func (s *Session) connToBucket(ctx context.Context, bucket uint32) (*conn, uint64, error) {
	if cn, shard := s.c.liveToBucket(s.node.tier, bucket); cn != nil {
		return cn, shard, nil
	}
	both, end := bothContexts(s.ctx, ctx)
	defer end()
	return s.c.connToBucket(both, s.node.tier, bucket)
}

// waitRetry is cluster.waitRetry for a request of the session.
func (s *Session) waitRetry(
	ctx context.Context, shard uint64, bucket uint32, cn *conn, err error, retry *requestRetry,
) {
	both, end := bothContexts(s.ctx, ctx)
	defer end()
	s.c.waitRetry(both, shard, uint64(bucket), cn, err, retry)
}

// assignSeq allocates a number if there is none yet, and fills in the head. mu is held.
func (s *Session) assignSeq(x *requestState) {
	if x.head == nil {
		return
	}
	if x.seq == 0 {
		x.seq = s.seqs.Take()
	}
	*x.head = protocol.Head{Session: s.id, Seq: x.seq, Low: s.seqs.Low()}
}

// present shows the session's ticket on a connection that it is not attached on, once per attach.
// It does not wait for the answer: later requests on the connection are accepted after it, or
// rejected and sent again.
func (s *Session) present(ctx context.Context, cn *conn, att *attachment) error {
	cn.mu.Lock()
	known := cn.presented[s] >= att.epoch
	cn.mu.Unlock()
	if known {
		return nil
	}
	m := &protocol.PresentTicket{Ticket: att.ticket, Description: s.opts.description}
	_, _, err := cn.startCall(ctx, s, protocol.KindPresentTicket, 0, m, func(_ uint64, cl *call) {
		put(&cn.presented, s, att.epoch)
		cl.reply = func(status protocol.Status, _ []byte, err error) {
			if err == nil && status != protocol.StatusOK {
				cn.forgetPresented(s)
			}
		}
	})
	return err
}

// handleBadSession is called when a request was rejected because the session is not known where it
// was sent.
func (s *Session) handleBadSession(route requestRoute) {
	if route.cn != route.att.cn {
		route.cn.mu.Lock()
		_, presented := route.cn.presented[s]
		delete(route.cn.presented, s)
		route.cn.mu.Unlock()
		if presented {
			return // show the ticket again
		}
	}
	s.detachHome(route.att)
}

// closeSeq closes a number: its answer has come, or nobody wants it. 0 is no number.
func (s *Session) closeSeq(seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seq != 0 {
		s.seqs.Close(seq)
	}
}

// sendOnce sends a numbered request until it is answered or ctx ends, and then closes its number.
// If the outcome is unknown then, the error says so. The server refuses a copy of the request that
// is still on its way once a later request of the session has arrived in the bucket.
func (s *Session) sendOnce(
	ctx context.Context, kind protocol.Kind, bucket uint32, head *protocol.Head, m, reply protocol.Message,
) error {
	x := requestState{head: head}
	if c, ok := m.(*protocol.Create); ok {
		x.queues = c.Options != nil
	}
	_, sent, err := s.send(ctx, kind, bucket, &x, m, reply)
	s.closeSeq(x.seq)
	if err != nil {
		err = outcomeUnknown(sent && !answered(err), err)
	}
	return err
}

// finishInBackground runs work until it is done. work resumes where it was interrupted, and says
// whether it is done. If ctx ends first, it goes on in the background while the session lives.
func (s *Session) finishInBackground(ctx context.Context, work func(context.Context) (done bool, err error)) error {
	done, err := work(ctx)
	if !done {
		s.continueInBackground(work)
	}
	return err
}

func (s *Session) continueInBackground(work func(context.Context) (done bool, err error)) {
	if s.endErr() == nil {
		s.c.run(func() {
			for done := false; !done && s.ctx.Err() == nil; {
				if done, _ = work(s.ctx); !done {
					sleep(s.ctx, nil, retryBase)
				}
			}
		})
	}
}
