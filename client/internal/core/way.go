package core

import "slices"

// Way follows how requests of a session reach a place: over which attachment, to which shard, on
// which connection. Whatever is sent to the session from there may be lost when that changes. It is
// its maker's, who sets the fields that begin with a capital before.
//
// It is a request that is never sent: where one would be, it waits for the end of that way among the
// acquires that wait for a result.
type Way struct {
	Waiter  Waiter // is in Ready.Wake when there is another way
	Session *Session
	To      Target

	Request
	other    bool // than at the last Next
	notified bool
	ended    error
}

func (w *Way) start(e *Engine) {
	s := w.Session
	w.Request = Request{purpose: purpose{session: s, op: w, to: w.found, tier: w.To.Tier}}
	w.other, w.notified, w.ended = false, false, nil
	if s.err != nil {
		w.over(e, s.err)
		return
	}
	s.ways = append(s.ways, w)
	e.send(&w.Request)
}

// found is the place in the lists that a request has that is on its way.
func (w *Way) found(e *Engine, r *Request) *Conn {
	bucket, home := w.To.owner(e.routes.table)
	r.arg = uint64(bucket)
	c := e.routes.toLeader(e, r, home)
	if c == nil {
		return nil
	}
	if c != w.Session.attachment.conn {
		w.Session.present(e, c)
	}
	r.state, r.on, r.att = Queued, c, w.Session.attachment
	c.inQueue.pushBack(r)
	e.routes.fetch.needed(e)
	w.other = true
	w.wake(e)
	return nil
}

func (w *Way) wake(e *Engine) {
	if !w.notified {
		w.notified = true
		e.ready.Wake = append(e.ready.Wake, w.Waiter)
	}
}

// Next reports whether requests take another way than at the last call, or take one for the first
// time. err is why there is none any more: the session is over.
func (w *Way) Next() (ok bool, err error) {
	if ok, w.other = w.other, false; !ok && w.ended == nil {
		w.notified = false
	}
	return ok, w.ended
}

func (w *Way) turn(*Engine)                {}
func (w *Way) decode([]byte) (bool, error) { return false, nil }
func (w *Way) decided(*Engine, error)      {}

// left: a connection was refused for good.
func (w *Way) left(e *Engine, err error) { w.over(e, err) }

func (w *Way) over(e *Engine, err error) {
	w.end(e)
	w.ended = err
	w.wake(e)
}

func (w *Way) end(e *Engine) {
	e.withdraw(&w.Request)
	w.Request.ended()
	s := w.Session
	s.ways = slices.DeleteFunc(s.ways, func(x *Way) bool { return x == w })
}
