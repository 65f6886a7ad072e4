package gateway

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Coordination"
	"google.golang.org/protobuf/proto"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
)

const (
	// maxInFlight bounds the requests of a stream that are not answered yet, an acquire until it is
	// queued. It is far above one session's need, and keeps a client that floods from filling the
	// window of all sessions with its token.
	maxInFlight = 1024
	// maxInFlightBytes bounds those requests in bytes: each may have up to maxRequest.
	maxInFlightBytes = 64 << 20
	// maxLongDescribes bounds the descriptions with owners or waiters that a stream reads at a
	// time, or that wait for room in its outbox: each may have up to maxDescription bytes.
	maxLongDescribes = 4
	// maxShortDescribes bounds the others: each may have up to protocol.MaxDataLen bytes.
	maxShortDescribes = 64
)

func randomNumber() uint64 { return rand.Uint64() }

// operations are the requests of one stream. Those on one name are sent in the order in which they
// came, each when the one before was answered: the cluster could receive two in the other order
// after a lost connection. Those on different names do not wait for each other.
//
// The handler calls the methods that begin a request. Answers are put into the outbox with mu held,
// so that they are in the order of the state below.
type operations struct {
	st       *stream
	stopping bool          // the client has asked to stop the session; the handler's
	long     chan struct{} // describes in progress, with owners or waiters
	short    chan struct{} // and without

	mu       sync.Mutex
	inFlight int
	bytes    int                      // of the requests in flight
	tails    map[string]chan struct{} // by name: closed when the last request so far was answered
	waiting  map[string]*acquire      // by name: the acquire in the queue that was not answered
	latest   map[string]*acquire      // by name: the acquire that was not answered, if no release or newer one followed
	watches  map[string]*watch        // by name: the session's one-shot watch
	arming   map[string]chan struct{} // by name: closed when the watch that replaces another is armed, or not
}

func newOperations(st *stream) *operations {
	return &operations{
		st: st, long: make(chan struct{}, maxLongDescribes), short: make(chan struct{}, maxShortDescribes),
		tails:   make(map[string]chan struct{}),
		waiting: make(map[string]*acquire), latest: make(map[string]*acquire), watches: make(map[string]*watch),
		arming: make(map[string]chan struct{}),
	}
}

// admit takes a place among the requests in flight for one of size bytes; without a place, refuse
// answers. A request behind a SessionStop is dropped: its session is over.
func (o *operations) admit(size int, refuse func(error)) bool {
	o.st.g.metrics.requests.Add(1)
	if o.stopping {
		return false
	}
	if size > maxRequest {
		refuse(protocol.Errorf(protocol.StatusBadRequest,
			"the request is %d bytes long, and at most %d are allowed; a semaphore's data may have 1 MiB", size, maxRequest))
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.inFlight >= maxInFlight {
		refuse(protocol.Errorf(protocol.StatusOverloaded,
			"%d requests of this stream are not answered yet, the most that may be; wait for answers", maxInFlight))
		return false
	}
	if o.bytes+size > maxInFlightBytes {
		refuse(protocol.Errorf(protocol.StatusOverloaded,
			"requests of %d bytes are not answered yet, and %d may be; wait for answers", o.bytes, maxInFlightBytes))
		return false
	}
	o.inFlight++
	o.bytes += size
	o.st.kept.add(size + pendingCost)
	return true
}

// leaver gives the place of a request of size bytes back.
func (o *operations) leaver(size int) func() {
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.inFlight--
		o.bytes -= size
		o.st.kept.add(-size - pendingCost)
	}
}

// effect is a request's effect on its semaphore.
type effect bool

const (
	writes effect = false
	reads  effect = true
)

// inOrder runs work when the requests on the name that came before are answered: those of the
// session, and within a bound those of other sessions on its connection. work calls answered once.
func (o *operations) inOrder(name string, does effect, work func(answered func())) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inOrderLocked(name, does, work)
}

// inOrderLocked is inOrder with mu held.
func (o *operations) inOrderLocked(name string, does effect, work func(answered func())) {
	after, leave := o.st.conn.names.join(nameKey{o.st.sess.path, name}, does == reads)
	before, own := o.tails[name], make(chan struct{})
	o.tails[name] = own
	answered := sync.OnceFunc(func() {
		leave()
		o.mu.Lock()
		defer o.mu.Unlock()
		close(own)
		if o.tails[name] == own {
			delete(o.tails, name)
		}
	})
	go func() {
		defer answered()
		if before != nil {
			select {
			case <-before:
			case <-o.st.ctx.Done():
				return
			}
		}
		awaitTurn(o.st.ctx, after)
		work(answered)
	}()
}

// simple runs a request with one answer.
func (o *operations) simple(
	m proto.Message, name string, run func(ctx context.Context) error, answer func(error) *response,
) {
	put := func(err error) { o.st.out.put(answer(err), guarded) }
	size := proto.Size(m)
	if !o.admit(size, put) {
		return
	}
	o.inOrder(name, writes, func(func()) {
		err := run(o.st.ctx)
		o.mu.Lock()
		defer o.mu.Unlock()
		if !o.st.isOver(err) { // else the stream is, and all its places with it
			o.st.out.putThen(answer(err), guarded, o.leaver(size))
		}
	})
}

func (o *operations) create(m *Ydb_Coordination.SessionRequest_CreateSemaphore) {
	o.simple(m, m.GetName(),
		func(ctx context.Context) error {
			return o.st.sess.native.Create(ctx, m.GetName(), m.GetLimit(), m.GetData())
		},
		func(err error) *response {
			return &response{Response: &Ydb_Coordination.SessionResponse_CreateSemaphoreResult_{
				CreateSemaphoreResult: &Ydb_Coordination.SessionResponse_CreateSemaphoreResult{ReqId: m.GetReqId(),
					Status: statusOf(err), Issues: issuesOf(err)},
			}}
		})
}

func (o *operations) update(m *Ydb_Coordination.SessionRequest_UpdateSemaphore) {
	o.simple(m, m.GetName(),
		func(ctx context.Context) error {
			_, err := o.st.sess.native.Update(ctx, m.GetName(), m.GetData())
			return err
		},
		func(err error) *response {
			return &response{Response: &Ydb_Coordination.SessionResponse_UpdateSemaphoreResult_{
				UpdateSemaphoreResult: &Ydb_Coordination.SessionResponse_UpdateSemaphoreResult{ReqId: m.GetReqId(),
					Status: statusOf(err), Issues: issuesOf(err)},
			}}
		})
}

func (o *operations) delete(m *Ydb_Coordination.SessionRequest_DeleteSemaphore) {
	o.simple(m, m.GetName(),
		func(ctx context.Context) error {
			return o.st.sess.native.Delete(ctx, m.GetName(), m.GetForce())
		},
		func(err error) *response {
			return &response{Response: &Ydb_Coordination.SessionResponse_DeleteSemaphoreResult_{
				DeleteSemaphoreResult: &Ydb_Coordination.SessionResponse_DeleteSemaphoreResult{ReqId: m.GetReqId(),
					Status: statusOf(err), Issues: issuesOf(err)},
			}}
		})
}

// stop carries out a SessionStop. Requests that came before it are answered first.
func (o *operations) stop() {
	if o.stopping {
		return
	}
	o.stopping = true
	o.mu.Lock()
	before := slices.Collect(maps.Values(o.tails))
	o.mu.Unlock()
	go func() {
		o.drain(before)
		err := o.st.sess.stop()
		if cause := o.st.sess.native.Err(); err == nil && !errors.Is(cause, client.ErrSessionClosed) {
			err = cause // it was over before
		}
		o.st.stopped <- err
	}()
}

// drain waits until the last requests on their names are answered and the answers are sent, for
// stopTimeout at most: the end of the session cuts off both. An acquire in the queue counts as
// answered, and gets no other answer.
func (o *operations) drain(tails []chan struct{}) {
	ctx, cancel := context.WithTimeout(o.st.ctx, stopTimeout)
	defer cancel()
	defer context.AfterFunc(o.st.sess.native.Context(), cancel)()
	for _, answered := range tails {
		select {
		case <-answered:
		case <-ctx.Done():
			return
		}
	}
	select {
	case <-o.st.out.sent():
	case <-ctx.Done():
	}
}
