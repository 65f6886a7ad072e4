package core

import "github.com/signalbox-dev/signalbox/protocol"

// wait is a request that is never sent: it waits in the lists where others wait to be.
type wait struct{ Request }

func (x *wait) turn(*Engine)                {}
func (x *wait) decode([]byte) (bool, error) { return false, nil }
func (x *wait) decided(*Engine, error)      {}

func (x *wait) left(e *Engine, err error) {
	e.withdraw(&x.Request)
	e.complete(&x.Request, Result{Err: err})
}

func (x *wait) over(e *Engine, err error) { e.fail(&x.Request, err) }

// MapWait waits for a map that has a tier with shards. A cluster that was made a moment ago has none
// yet.
type MapWait struct {
	wait
	Tier      uint8
	Any       bool   // any map will do
	NewerThan uint64 // version
	Refresh   bool   // the map is asked for first, once; one that is not newer is a reason for a pause
	Tries     int    // refreshes in a row before this one: the pause grows with them

	asked bool
}

func (x *MapWait) begin(e *Engine) {
	x.Request = Request{Waiter: x.Waiter, purpose: purpose{op: x, to: x.arrived, tier: x.Tier}}
	x.asked, x.retry.failures = false, x.Tries
	e.send(&x.Request)
}

// arrived is the destination of a wait: none, but the list of what waits for a map.
func (x *MapWait) arrived(e *Engine, r *Request) *Conn {
	if x.Refresh && !x.asked {
		x.asked = true
		e.routes.fetch.waiting.pushBack(r)
		e.routes.fetch.begin(e, nil)
		return nil
	}
	if t := e.routes.table; t != nil && t.version > x.NewerThan && (x.Any || len(e.Shards(x.Tier)) > 0) {
		e.complete(r, Result{})
		return nil
	}
	if !x.Any {
		r.last = errNoTier(x.Tier)
	}
	e.routes.awaitMap(e, r)
	return nil
}

func errNoTier(tier uint8) error {
	return protocol.Errorf(protocol.StatusUnavailable, "the cluster map has no shard for tier %d yet: "+
		"the cluster is being made, or no instance of that tier was started", tier)
}

// ConnWait waits for a connection to any instance.
type ConnWait struct {
	wait
	Conn *Conn
}

func (x *ConnWait) begin(e *Engine) {
	x.Request = Request{Waiter: x.Waiter, purpose: purpose{op: x, to: x.arrived}}
	e.send(&x.Request)
}

func (x *ConnWait) arrived(e *Engine, r *Request) *Conn {
	if c := anyInstance(e, r); c != nil {
		x.Conn = c
		e.complete(r, Result{})
	}
	return nil
}

// NameWait waits until the session's operations on a semaphore that came before are over.
type NameWait struct {
	wait
	name *name
}

func (x *NameWait) begin(e *Engine, s *Session, key string) {
	x.Request = Request{Waiter: x.Waiter, purpose: purpose{op: x, session: s, tier: s.Tier}}
	if s.err != nil {
		e.fail(&x.Request, s.err)
		return
	}
	x.name = s.names.take(e, s, key)
	x.name.lock(e, &x.Request, Next)
}

func (x *NameWait) turn(e *Engine) {
	x.name.unlock(e)
	e.complete(&x.Request, Result{})
}
