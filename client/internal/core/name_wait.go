package core

// NameWait waits until the session's operations on a semaphore that came before are over.
type NameWait struct {
	Request
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

func (x *NameWait) decode([]byte) (bool, error) { return false, nil }
func (x *NameWait) decided(*Engine, error)      {}

func (x *NameWait) left(e *Engine, err error) {
	e.withdraw(&x.Request)
	e.complete(&x.Request, Result{Err: err})
}

func (x *NameWait) over(e *Engine, err error) { e.fail(&x.Request, err) }
