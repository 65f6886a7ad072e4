package gateway

import (
	"context"

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
	placed   bool               // it has a place among the requests in flight; operations.mu guards it, as answered
	answered bool
}

var errReplaced = protocol.Errorf(protocol.StatusAborted, "a newer acquire of the session on this semaphore takes the place of this one")
var errReleased = protocol.Errorf(protocol.StatusAborted, "the session has left the queue of this semaphore with a release")

func (o *operations) acquire(m *Ydb_Coordination.SessionRequest_AcquireSemaphore) {
	ctx, cancel := context.WithCancel(o.st.ctx)
	a := &acquire{reqID: m.GetReqId(), name: m.GetName(), size: proto.Size(m), cancel: cancel, placed: true}
	if !o.admit(a.size, func(err error) { o.st.out.put(a.result(false, err), guarded) }) {
		cancel()
		return
	}
	o.inOrder(a.name, func(answered func()) {
		defer cancel()
		defer o.st.kept.add(-a.size - pendingCost) // a request that waits in the queue is kept
		acquired, err := gateway.Acquire(ctx, o.st.sess.native, gateway.AcquireRequest{
			Name: a.name, Count: m.GetCount(), Timeout: m.GetTimeoutMillis(), Data: m.GetData(), Ephemeral: m.GetEphemeral(),
		}, func() {
			o.queued(a)
			answered() // the next request on the name may go
		})
		o.finish(a, acquired, err)
	})
}

// queued is called when the cluster has put an acquire into the semaphore's queue.
func (o *operations) queued(a *acquire) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.abort(o.waiting[a.name], errReplaced)
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
	if o.waiting[a.name] == a {
		delete(o.waiting, a.name)
	} else if err == nil {
		// It was decided at once. Whatever it came to, the entry that waited is not there any more.
		o.abort(o.waiting[a.name], errReplaced)
	}
	a.answered = true
	o.giveUpPlace(a)
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
	a.answered = true
	a.cancel()
	delete(o.waiting, a.name)
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
	o.inOrder(m.GetName(), func(func()) {
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
