package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Coordination"
	"google.golang.org/protobuf/proto"

	"github.com/signalbox-dev/signalbox/client/gateway"
	"github.com/signalbox-dev/signalbox/protocol"
)

// acquire is one AcquireSemaphore. It is answered once, with AcquireSemaphorePending before at most
// once.
type acquire struct {
	reqID    uint64
	name     string
	size     int                // of the request, in bytes
	cancel   context.CancelFunc // of its wait
	until    time.Time          // its deadline, by its timeout from its receipt on; zero: none
	sent     bool               // to the cluster
	placed   bool               // it has a place among the requests in flight; operations.mu guards it, as answered
	answered bool
}

var errReplaced = protocol.Errorf(protocol.StatusAborted,
	"a newer acquire of the session on this semaphore takes the place of this one")
var errReleased = protocol.Errorf(protocol.StatusAborted,
	"the session has left the queue of this semaphore with a release")

func (o *operations) acquire(m *Ydb_Coordination.SessionRequest_AcquireSemaphore) {
	ctx, cancel := context.WithCancel(o.st.ctx)
	a := &acquire{reqID: m.GetReqId(), name: m.GetName(), size: proto.Size(m), cancel: cancel, placed: true}
	if !o.admit(a.size, func(err error) { o.st.out.put(a.result(false, err), guarded) }) {
		cancel()
		return
	}
	o.setDeadline(ctx, a, m.GetTimeoutMillis())
	o.inOrder(a.name, writes, func(answered func()) {
		defer cancel()
		defer o.st.kept.add(-a.size - pendingCost) // a request that waits in the queue is kept
		timeout, late := o.timeLeft(a, m.GetTimeoutMillis())
		if late {
			return
		}
		acquired, err := gateway.Acquire(ctx, o.st.sess.native, gateway.AcquireRequest{
			Name: a.name, Count: m.GetCount(), Timeout: timeout, Data: m.GetData(), Ephemeral: m.GetEphemeral(),
		}, func() {
			o.queued(a)
			answered() // the next request on the name may go
		})
		o.finish(a, acquired, err)
	})
}

// setDeadline has an acquire with a timeout answered at its deadline at the latest. SDKs have a
// timer of their own for it, which begins before the request arrives. They drop later answers, and
// would not know that they hold the semaphore.
func (o *operations) setDeadline(ctx context.Context, a *acquire, timeout uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.latest[a.name] = a
	if timeout == 0 || timeout > maxAcquireTimeout { // a try; endless, or the cluster refuses it
		return
	}
	d := time.Duration(timeout) * time.Millisecond
	a.until = time.Now().Add(d)
	late := time.AfterFunc(d, func() { o.expire(a) })
	context.AfterFunc(ctx, func() { late.Stop() })
}

// maxAcquireTimeout is the longest timeout of an acquire that the cluster takes, in milliseconds.
const maxAcquireTimeout = uint64(24 * time.Hour / time.Millisecond)

// timeLeft returns the milliseconds left of an acquire's timeout. late: it was answered already.
func (o *operations) timeLeft(a *acquire, timeout uint64) (left uint64, late bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !a.until.IsZero() {
		timeout = uint64(max(time.Until(a.until).Milliseconds(), 1))
	}
	a.sent = true
	return timeout, a.answered
}

// expire answers an acquire at its deadline. While the cluster has not answered at all, the acquire
// may change the session's lease, and gets the cluster's answer.
func (o *operations) expire(a *acquire) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !a.answered && o.st.ctx.Err() == nil && (!a.sent || o.waiting[a.name] == a) {
		o.giveUp(a)
	}
}

// giveUp answers an acquire whose deadline is over. Its entry leaves the queue, unless a newer acquire
// or a release of the session decides on it. If it was granted in the same moment, that is released
// too: its client does not know that it holds it. mu is held.
func (o *operations) giveUp(a *acquire) {
	leave := a.sent && o.latest[a.name] == a
	o.resolve(a)
	if leave {
		o.inOrderLocked(a.name, writes, func(func()) { _, _ = o.st.sess.native.Release(o.st.ctx, a.name) })
	}
	o.st.out.put(a.result(false, nil), guarded)
}

// resolve marks an acquire as answered. mu is held.
func (o *operations) resolve(a *acquire) {
	a.answered = true
	a.cancel()
	if o.waiting[a.name] == a {
		delete(o.waiting, a.name)
	}
	if o.latest[a.name] == a {
		delete(o.latest, a.name)
	}
	o.giveUpPlace(a)
}

// queued is called when the cluster has put an acquire into the semaphore's queue.
func (o *operations) queued(a *acquire) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if a.answered {
		return // at its deadline
	}
	o.abort(o.waiting[a.name], errReplaced)
	if !a.until.IsZero() && time.Now().After(a.until) {
		o.giveUp(a)
		return
	}
	o.waiting[a.name] = a
	o.giveUpPlace(a)
	o.st.out.put(&response{Response: &Ydb_Coordination.SessionResponse_AcquireSemaphorePending_{
		AcquireSemaphorePending: &Ydb_Coordination.SessionResponse_AcquireSemaphorePending{ReqId: a.reqID},
	}}, guarded)
}

// finish answers an acquire with its outcome.
func (o *operations) finish(a *acquire, acquired bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if a.answered {
		return
	}
	if o.waiting[a.name] != a && err == nil {
		// It was decided at once. Whatever it came to, the entry that waited is not there any more.
		o.abort(o.waiting[a.name], errReplaced)
	}
	o.resolve(a)
	if w := o.waiting[a.name]; w != nil && o.latest[a.name] == nil { // this one was refused
		o.latest[a.name] = w
	}
	if !o.st.isOver(err) {
		o.st.out.put(a.result(acquired, err), guarded)
	}
}

// abort answers the acquire that waits on a name, if there is one: its entry was replaced or
// released. The cluster says so too, later. mu is held.
func (o *operations) abort(a *acquire, err error) {
	if a == nil || a.answered {
		return
	}
	o.resolve(a)
	o.st.out.put(a.result(false, err), guarded)
}

// giveUpPlace ends an acquire's place among the requests in flight. mu is held.
func (o *operations) giveUpPlace(a *acquire) {
	if a.placed {
		a.placed = false
		o.inFlight--
		o.bytes -= a.size
	}
}

func (a *acquire) result(acquired bool, err error) *response {
	return &response{Response: &Ydb_Coordination.SessionResponse_AcquireSemaphoreResult_{
		AcquireSemaphoreResult: &Ydb_Coordination.SessionResponse_AcquireSemaphoreResult{
			ReqId: a.reqID, Status: statusOf(err), Issues: issuesOf(err), Acquired: acquired,
		},
	}}
}

func (o *operations) release(m *Ydb_Coordination.SessionRequest_ReleaseSemaphore) {
	answer := func(released bool, err error) *response {
		return &response{Response: &Ydb_Coordination.SessionResponse_ReleaseSemaphoreResult_{
			ReleaseSemaphoreResult: &Ydb_Coordination.SessionResponse_ReleaseSemaphoreResult{
				ReqId: m.GetReqId(), Status: statusOf(err), Issues: issuesOf(err), Released: released,
			},
		}}
	}
	size := proto.Size(m)
	if !o.admit(size, func(err error) { o.st.out.put(answer(false, err), guarded) }) {
		return
	}
	o.mu.Lock()
	delete(o.latest, m.GetName()) // this decides on its entry
	o.mu.Unlock()
	o.inOrder(m.GetName(), writes, func(func()) {
		released, err := o.st.sess.native.Release(o.st.ctx, m.GetName())
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.st.isOver(err) {
			return
		}
		if err == nil && released {
			o.abort(o.waiting[m.GetName()], errReleased)
		}
		o.st.out.putThen(answer(released, err), guarded, o.leaver(size))
	})
}

// orderPatience is how long a request waits for those of other sessions on its connection and name.
// It bounds the delay that a session without a reachable shard causes the others.
const orderPatience = time.Second

// nameOrder is the order in which the requests of one connection on a name take effect: that in which
// they came, as at YDB's tablet. Reads between the same writes take effect side by side.
type nameOrder struct {
	mu    sync.Mutex
	turns map[nameKey]*turn // the newest
}

type nameKey struct{ node, name string }

// turn is a write, or reads side by side. nameOrder.mu guards it.
type turn struct {
	after <-chan struct{} // closed when the turn before is over, or nil
	reads bool
	open  int           // requests that were not answered
	over  chan struct{} // closed when open is 0
}

// join gives a request its place. leave is called once, when it was answered.
func (o *nameOrder) join(key nameKey, reads bool) (after <-chan struct{}, leave func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.turns == nil {
		o.turns = make(map[nameKey]*turn)
	}
	t := o.turns[key]
	if t == nil || !t.reads || !reads {
		next := &turn{reads: reads, over: make(chan struct{})}
		if t != nil {
			next.after = t.over
		}
		o.turns[key], t = next, next
	}
	t.open++
	return t.after, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if t.open--; t.open > 0 {
			return
		}
		close(t.over)
		if o.turns[key] == t {
			delete(o.turns, key)
		}
	}
}

// awaitTurn waits until the turn before is over, or for orderPatience.
func awaitTurn(ctx context.Context, after <-chan struct{}) {
	if after == nil {
		return
	}
	late := time.NewTimer(orderPatience)
	defer late.Stop()
	select {
	case <-after:
	case <-late.C:
	case <-ctx.Done():
	}
}
