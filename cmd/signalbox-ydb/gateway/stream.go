package gateway

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ydb-platform/ydb-go-genproto/Ydb_Coordination_V1"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Coordination"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/gateway"
	"github.com/signalbox-dev/signalbox/protocol"
)

const (
	// startTimeout is how long a stream may be open without a SessionStart.
	startTimeout = 10 * time.Second
	// flushTimeout is how long the end of a stream waits for a client that does not read.
	flushTimeout = time.Second
	// firstMessage is YDB's text, which the tests of an SDK compare.
	firstMessage = "First message must be a SessionStart"
)

// Short names for the messages of a stream.
type (
	request  = Ydb_Coordination.SessionRequest
	response = Ydb_Coordination.SessionResponse
)

// stream is one call of Session. Three goroutines at most work for it: the handler, which pings and
// ends it; the reader; and a writer while there is something to send. Each request has one more
// while it is in progress.
type stream struct {
	g    *Gateway
	rpc  Ydb_Coordination_V1.CoordinationService_SessionServer
	sess *session
	ctx  context.Context // ends with the stream
	out  *outbox
	ops  *operations
	live *liveness
	conn *limitedConn
	kept *share // of the gateway's memory

	inOrder atomic.Bool // requests have their places among those of the connection

	failed  chan error // capacity 1: ends the stream with a failure
	stopped chan error // capacity 1: the client's SessionStop was carried out, or not
}

// Session serves one stream.
func (c *coordination) Session(rpc Ydb_Coordination_V1.CoordinationService_SessionServer) error {
	g := c.g
	if g.ctx.Err() != nil {
		return grpcstatus.Error(codes.Unavailable, "the gateway is shutting down; use another one")
	}
	end, err := g.calls.begin(rpc.Context())
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithCancel(rpc.Context())
	defer cancel()
	st := &stream{g: g, rpc: rpc, ctx: ctx, failed: make(chan error, 1), stopped: make(chan error, 1)}
	return st.run(end)
}

// run serves the stream. started is called when it has its session.
func (st *stream) run(started func()) error {
	st.conn = connOf(st.ctx)
	requests := make(chan received)
	ended := make(chan error, 1)
	go st.read(requests, ended)

	var first received
	late := time.NewTimer(startTimeout)
	defer late.Stop()
	select {
	case first = <-requests:
	case err := <-ended:
		if err == nil { // YDB answers a client that closes its side too early like this
			err = grpcstatus.Error(codes.Canceled, "the stream was closed before its SessionStart")
		}
		return err
	case <-late.C:
	}
	asked := first.m.GetSessionStart()
	if asked == nil {
		return grpcstatus.Error(codes.InvalidArgument, firstMessage)
	}
	sess, release, err := st.open(asked)
	if err != nil {
		st.g.metrics.refused.Add(1)
		st.g.delays.wait(st.ctx, st.g.ctx)
	}
	st.g.clusters.CallEnded(tokenOf(st.ctx), err)
	if gateway.IsUnauthenticated(err) {
		return grpcstatus.Error(codes.Unauthenticated, err.Error())
	}
	if err != nil {
		return st.rpc.Send(failure(statusOf(err), err))
	}
	defer release()
	defer sess.leave()
	started()
	st.sess = sess
	sess.serve(st)
	st.g.metrics.streams.Add(1)
	defer st.g.metrics.streams.Add(-1)
	st.live = newLiveness(sess.timeout)
	st.kept = st.g.memory.join(st.fail)
	defer st.kept.leave()
	st.out = newOutbox(st.ctx, st.rpc, sess.healthy, st.fail, &st.g.metrics.outbox, st.kept)
	st.ops = newOperations(st)
	st.out.put(&response{Response: &Ydb_Coordination.SessionResponse_SessionStarted_{
		SessionStarted: &Ydb_Coordination.SessionResponse_SessionStarted{SessionId: sess.id,
			TimeoutMillis: uint64(sess.timeout.Milliseconds())},
	}}, guarded)
	st.inOrder.Store(true)
	return st.serve(requests, ended)
}

// open carries out a SessionStart. release is called when the stream is over.
func (st *stream) open(
	asked *Ydb_Coordination.SessionRequest_SessionStart,
) (sess *session, release func(), err error) {
	s, err := st.g.checkStart(st.ctx, asked)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(st.ctx, answerTimeout)
	defer cancel()
	c, release, err := st.g.clusters.Use(ctx, tokenOf(st.ctx), hostOf(st.ctx))
	if err != nil {
		return nil, nil, err
	}
	if sess, err = c.State.open(st.ctx, s); err != nil {
		release()
		return nil, nil, err
	}
	return sess, release, nil
}

// checkStart checks a SessionStart. What is not checked here the cluster checks.
func (g *Gateway) checkStart(
	ctx context.Context, asked *Ydb_Coordination.SessionRequest_SessionStart,
) (s start, err error) {
	if err := g.checkDatabase(ctx); err != nil {
		return s, err
	}
	if s.path, err = g.nodePath(asked.GetPath()); err != nil {
		return s, err
	}
	if asked.GetSeqNo() > maxSeqNo {
		return s, protocol.Errorf(protocol.StatusBadRequest, "seq_no is %d; at most %d is allowed", asked.GetSeqNo(),
			uint64(maxSeqNo))
	}
	if asked.GetTimeoutMillis() > uint64(protocol.MaxSessionTimeout) {
		return s, protocol.Errorf(protocol.StatusBadRequest, "the session timeout is %d ms; at most %d are allowed",
			asked.GetTimeoutMillis(), uint64(protocol.MaxSessionTimeout))
	}
	if s.key, err = sessionKey(asked.GetProtectionKey()); err != nil {
		return s, err
	}
	if s.host = hostOf(ctx); asked.GetSessionId() == 0 {
		if err := g.left.check(s.host); err != nil {
			return s, err
		}
	}
	s.session, s.seqNo, s.description = asked.GetSessionId(), asked.GetSeqNo(), asked.GetDescription()
	s.timeout = min(time.Duration(asked.GetTimeoutMillis())*time.Millisecond, gateway.MaxTimeout)
	return s, nil
}

// serve works until the stream ends. It returns the result of the call: YDB reports failures in a
// message, and ends the call with OK.
func (st *stream) serve(requests <-chan received, ended <-chan error) error {
	ping := time.NewTimer(0) // the first one right behind SessionStarted
	defer ping.Stop()
	over := st.sess.native.Context().Done()
	for {
		select {
		case r := <-requests:
			st.handle(r.m)
			r.at.take()
		case <-ping.C:
			ping.Reset(st.live.period)
			if !st.sess.healthy() {
				st.live.received(time.Now()) // it is the cluster that is silent: no ping reaches the client
				continue
			}
			st.live.transferred(time.Now(), st.conn.in.unfinished())
			if st.live.isSilent(time.Now()) {
				st.g.metrics.silent.Add(1)
				return st.end(Ydb.StatusIds_TIMEOUT, errors.New("nothing was received from the client for too long"))
			}
			if n, due := st.live.nextPing(); due {
				st.out.putThen(&response{Response: &Ydb_Coordination.SessionResponse_Ping{
					Ping: &Ydb_Coordination.SessionResponse_PingPong{Opaque: n},
				}}, guarded, func() { st.live.delivered(time.Now()) })
			}
		case err := <-st.stopped:
			if err != nil {
				return st.end(statusOf(err), err)
			}
			st.out.put(&response{Response: &Ydb_Coordination.SessionResponse_SessionStopped_{
				SessionStopped: &Ydb_Coordination.SessionResponse_SessionStopped{SessionId: st.sess.id},
			}}, atOnce)
			st.out.flush(flushTimeout)
			return nil
		case err := <-st.failed:
			if gateway.IsUnauthenticated(err) {
				return grpcstatus.Error(codes.Unauthenticated, err.Error())
			}
			return st.end(statusOf(err), err)
		case <-over:
			if st.ops.stopping {
				over = nil // by its client, who gets the answer
				continue
			}
			err := st.sess.native.Err()
			if gateway.IsUnauthenticated(err) {
				return grpcstatus.Error(codes.Unauthenticated, err.Error())
			}
			return st.end(statusOf(err), err)
		case <-st.g.ctx.Done():
			return st.end(Ydb.StatusIds_UNAVAILABLE,
				errors.New("the gateway is shutting down; restore the session at another one"))
		case err := <-ended:
			if err == nil && st.ops.stopping {
				ended = nil // it has nothing more to say, and still gets the answer
				continue
			}
			return err
		}
	}
}

// end sends why the stream ends, and waits until that is sent.
func (st *stream) end(status Ydb.StatusIds_StatusCode, err error) error {
	st.out.put(failure(status, err), atOnce)
	st.out.flush(flushTimeout)
	return nil
}

// fail ends the stream from any goroutine.
func (st *stream) fail(err error) {
	select {
	case st.failed <- err:
	default:
	}
}

// received is a message from the client.
type received struct {
	m  *request
	at *arrival // taken when the request has its place in the order of its name
}

// read passes on the client's messages, until the stream ends. Messages from before the session's
// start have no place among the requests of other streams: they could hold them up for long.
func (st *stream) read(requests chan<- received, ended chan<- error) {
	follower := st.conn.in.follow(st.rpc.Context())
	defer follower.end()
	for {
		m, err := st.rpc.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil // the client has closed its side
			}
			ended <- err
			return
		}
		r := received{m, follower.next()}
		if !st.inOrder.Load() {
			r.at.take()
		}
		r.at.wait(st.ctx)
		select {
		case requests <- r:
		case <-st.ctx.Done():
			r.at.take()
			return
		}
	}
}

// handle begins a request. It does not wait.
func (st *stream) handle(m *request) {
	st.live.received(time.Now())
	switch m := m.GetRequest().(type) {
	case *Ydb_Coordination.SessionRequest_Pong:
	case *Ydb_Coordination.SessionRequest_Ping:
		if n := m.Ping.GetOpaque(); !st.live.isOwnPing(n) {
			st.out.put(
				&response{Response: &Ydb_Coordination.SessionResponse_Pong{Pong: &Ydb_Coordination.SessionResponse_PingPong{Opaque: n}}},
				guarded)
		}
	case *Ydb_Coordination.SessionRequest_SessionStart_:
		st.fail(protocol.Errorf(protocol.StatusBadRequest, "a session is started once on a stream; open another stream"))
	case *Ydb_Coordination.SessionRequest_SessionStop_:
		st.ops.stop()
	case *Ydb_Coordination.SessionRequest_AcquireSemaphore_:
		st.ops.acquire(m.AcquireSemaphore)
	case *Ydb_Coordination.SessionRequest_ReleaseSemaphore_:
		st.ops.release(m.ReleaseSemaphore)
	case *Ydb_Coordination.SessionRequest_DescribeSemaphore_:
		st.ops.describe(m.DescribeSemaphore)
	case *Ydb_Coordination.SessionRequest_CreateSemaphore_:
		st.ops.create(m.CreateSemaphore)
	case *Ydb_Coordination.SessionRequest_UpdateSemaphore_:
		st.ops.update(m.UpdateSemaphore)
	case *Ydb_Coordination.SessionRequest_DeleteSemaphore_:
		st.ops.delete(m.DeleteSemaphore)
	default:
		st.fail(protocol.Errorf(protocol.StatusBadRequest, "the gateway does not know this kind of request"))
	}
}

func failure(status Ydb.StatusIds_StatusCode, err error) *response {
	return &response{Response: &Ydb_Coordination.SessionResponse_Failure_{
		Failure: &Ydb_Coordination.SessionResponse_Failure{Status: status, Issues: issuesOf(err)},
	}}
}

// isOver reports whether an error is the end of the session or of the stream, and not an answer.
func (st *stream) isOver(err error) bool {
	return err != nil && (st.ctx.Err() != nil || st.sess.native.Err() != nil || errors.Is(err, client.ErrSessionClosed))
}

// period of pings is a third of the timeout, at most maxPing. A timeout of 0 cannot be kept alive,
// so the pings find a silent client only. YDB pings such a client each 10 ms, its shortest period,
// because there one missing pong ends the stream. Here silence counts after 5 s.
const (
	pingShare = 3
	maxPing   = 2 * time.Second
	minPing   = 50 * time.Millisecond
	// silence is how long nothing may come from a client that has a ping to answer, and at least
	// two periods.
	silence = 5 * time.Second
	// undeliveredSilence is the same while the ping waits behind longer answers. The 64 MiB that
	// may wait for a client take that long at 1.8 Mbit/s.
	undeliveredSilence = 5 * time.Minute
	// leastUpload is how much of long messages must come on a client's connection, in bytes, for one
	// to be on its way: its answers to pings wait behind that. It may take undeliveredSilence too.
	leastUpload = 8 << 10
	// recentPings is how many pings may be unanswered and still count if the client sends their
	// number back as a ping of its own, as one SDK does.
	recentPings = 8
)

// liveness is the stream's record of its client. The handler uses it, and the outbox's writer calls
// delivered.
type liveness struct {
	period time.Duration
	limit  time.Duration
	ping   uint64 // number of the last ping; the handler's

	mu     sync.Mutex
	last   time.Time // when a message came from the client
	asked  time.Time // when the first ping after that was delivered, or a part of a message came; zero: neither
	bytes  int64     // bytes received on the connection by then
	queued bool      // the last ping is not delivered yet
}

func newLiveness(timeout time.Duration) *liveness {
	period := maxPing
	if timeout > 0 {
		period = min(max(timeout/pingShare, minPing), maxPing)
	}
	return &liveness{period: period, limit: max(2*period, silence), last: time.Now(), ping: randomNumber()}
}

func (l *liveness) received(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.asked = now, time.Time{}
}

// transferred is called before each ping with the bytes of long messages that have come on the
// client's connection in part. If they are many more than before, one is on its way.
func (l *liveness) transferred(now time.Time, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.asked.IsZero(), bytes < l.bytes: // another stream's message may have come whole
		l.bytes = bytes
	case bytes-l.bytes >= leastUpload && now.Sub(l.last) <= undeliveredSilence:
		l.asked, l.bytes = now, bytes
	}
}

// isSilent reports whether the client owes an answer for too long. A client that still receives
// bytes sent before the ping has nothing to answer.
func (l *liveness) isSilent(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked.IsZero() {
		return now.Sub(l.last) > undeliveredSilence
	}
	return now.Sub(l.asked) > l.limit
}

// nextPing is the number of a ping to send now. None is due while one waits to be sent.
func (l *liveness) nextPing() (number uint64, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queued {
		return 0, false
	}
	l.queued = true
	l.ping++
	return l.ping, true
}

// delivered is called when gRPC has taken a ping: all but the last 64 KiB before it are sent.
func (l *liveness) delivered(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queued = false
	if l.asked.IsZero() {
		l.asked = now
	}
}

// isOwnPing reports whether a ping from the client has the number of one that was sent to it: then
// it is the answer.
func (l *liveness) isOwnPing(n uint64) bool { return l.ping-n < recentPings }
