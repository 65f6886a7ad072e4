package gateway

import (
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Coordination"
	"google.golang.org/protobuf/proto"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/gateway"
	"github.com/signalbox-dev/signalbox/protocol"
)

// watch is the one-shot watch of a DescribeSemaphore. It fires once. operations.mu guards it.
type watch struct {
	reqID uint64
	name  string
	fired bool
}

func (o *operations) describe(m *Ydb_Coordination.SessionRequest_DescribeSemaphore) {
	answer := func(sem *client.Semaphore, watched bool, err error) *response {
		r := &Ydb_Coordination.SessionResponse_DescribeSemaphoreResult{ReqId: m.GetReqId(), Status: statusOf(err),
			Issues: issuesOf(err), WatchAdded: watched}
		if err == nil {
			r.SemaphoreDescription = describeSemaphore(sem)
		}
		return &response{Response: &Ydb_Coordination.SessionResponse_DescribeSemaphoreResult_{DescribeSemaphoreResult: r}}
	}
	size := proto.Size(m)
	if !o.admit(size, func(err error) { o.st.out.put(answer(nil, false, err), guarded) }) {
		return
	}
	name := m.GetName()
	req := gateway.DescribeRequest{Name: name, Owners: m.GetIncludeOwners(), Waiters: m.GetIncludeWaiters(),
		MaxBytes: maxDescription}
	if m.GetWatchData() {
		req.Watch |= gateway.OnData
	}
	if m.GetWatchOwners() {
		req.Watch |= gateway.OnOwners
	}
	o.inOrder(name, reads, func(answered func()) {
		slots := o.short
		if req.Owners || req.Waiters {
			slots = o.long
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-o.st.ctx.Done():
			return
		}
		armed := o.beginArming(name, req.Watch != 0)
		read := 0
		req.Progress = func(bytes int) {
			o.st.kept.add(bytes - read)
			read = bytes
		}
		sem, fired, err := gateway.Describe(o.st.ctx, o.st.sess.native, req)
		var reply *response
		if err == nil {
			reply = answer(sem, fired != nil, nil)
			err = checkDescription(sem, proto.Size(reply))
		}
		if err != nil {
			reply = answer(nil, false, err)
		}
		o.st.kept.add(-read) // the reservation counts it
		room := o.st.out.reserve(reply)
		o.mu.Lock()
		defer o.mu.Unlock()
		defer armed()
		if !room {
			return // the stream is over
		}
		if o.st.isOver(err) {
			o.st.out.unreserve(reply)
			return
		}
		var w *watch
		if fired != nil {
			o.fire(o.watches[name], gateway.WatchResult{}) // it was replaced
			if err == nil {
				w = &watch{reqID: m.GetReqId(), name: name}
				o.watches[name] = w
			}
		}
		o.st.out.putReserved(reply, o.leaver(size))
		if w != nil {
			o.st.kept.add(pendingCost)
			go o.awaitChange(w, fired)
		}
	})
}

// checkDescription refuses one that a client cannot take, or would take for the state of one
// moment.
func checkDescription(sem *client.Semaphore, size int) error {
	switch {
	case sem.Torn:
		return protocol.Errorf(protocol.StatusOverloaded,
			"the semaphore has %d owners and %d waiters, and changes faster than their description can be read; try again",
			sem.NumOwners, sem.NumWaiters)
	case size > maxDescription:
		return protocol.Errorf(protocol.StatusPreconditionFailed,
			"the description is longer than %d bytes; describe the semaphore without its owners and waiters", maxDescription)
	}
	return nil
}

// beginArming records that a watch of the name is being replaced. ended is called with mu held.
func (o *operations) beginArming(name string, watching bool) (ended func()) {
	if !watching {
		return func() {}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	armed := make(chan struct{})
	o.arming[name] = armed
	return func() {
		delete(o.arming, name)
		close(armed)
	}
}

// awaitChange reports the end of a watch. The cluster fires a watch without flags when another one
// replaces it, and when a change may have been missed: then it is reported as a change of both.
func (o *operations) awaitChange(w *watch, fired <-chan gateway.WatchResult) {
	defer o.st.kept.add(-pendingCost)
	var result gateway.WatchResult
	select {
	case result = <-fired:
	case <-o.st.ctx.Done():
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !result.DataChanged && !result.OwnersChanged {
		for armed := o.arming[w.name]; armed != nil; armed = o.arming[w.name] {
			o.mu.Unlock()
			select {
			case <-armed: // if that took its place, it was reported
			case <-o.st.ctx.Done():
			}
			o.mu.Lock()
			if o.st.ctx.Err() != nil {
				return
			}
		}
		result = gateway.WatchResult{DataChanged: true, OwnersChanged: true}
	}
	if o.st.sess.native.Err() == nil { // else the stream ends with the session
		o.fire(w, result)
	}
}

// fire reports the end of a watch once. mu is held.
func (o *operations) fire(w *watch, r gateway.WatchResult) {
	if w == nil || w.fired {
		return
	}
	w.fired = true
	if o.watches[w.name] == w {
		delete(o.watches, w.name)
	}
	o.st.out.put(&response{Response: &Ydb_Coordination.SessionResponse_DescribeSemaphoreChanged_{
		DescribeSemaphoreChanged: &Ydb_Coordination.SessionResponse_DescribeSemaphoreChanged{ReqId: w.reqID,
			DataChanged: r.DataChanged, OwnersChanged: r.OwnersChanged},
	}}, guarded)
}

func describeSemaphore(sem *client.Semaphore) *Ydb_Coordination.SemaphoreDescription {
	d := &Ydb_Coordination.SemaphoreDescription{Name: sem.Name, Data: sem.Data, Count: sem.Used, Limit: sem.Limit,
		Ephemeral: sem.Ephemeral}
	for i := range sem.Owners {
		w := &sem.Owners[i]
		d.Owners = append(d.Owners,
			&Ydb_Coordination.SemaphoreSession{OrderId: w.Token, SessionId: w.Session, Count: w.Count, Data: w.Data})
	}
	for i := range sem.Waiters {
		w := &sem.Waiters[i]
		timeout := gateway.Forever
		if w.Timeout != client.Forever {
			timeout = uint64(w.Timeout.Milliseconds())
		}
		d.Waiters = append(d.Waiters, &Ydb_Coordination.SemaphoreSession{OrderId: w.Place, SessionId: w.Session,
			Count: w.Count, Data: w.Data, TimeoutMillis: timeout})
	}
	return d
}
