// Which timeout has each call?

package loadgen

import "context"

// call gives one call to the server its context: a caller's own, with the deadline of the load.
func (e *Env) call(ctx context.Context) (context.Context, context.CancelFunc) {
	if e.Deadline == 0 {
		return ctx, noDeadline
	}
	return context.WithTimeout(ctx, e.Deadline)
}

func noDeadline() {}

func (e *Env) acquire(ctx context.Context, a Acquirer, name string) (Lease, error) {
	ctx, cancel := e.call(ctx)
	defer cancel()
	return a.Acquire(ctx, name)
}

func (e *Env) release(ctx context.Context, l Lease) error {
	ctx, cancel := e.call(ctx)
	defer cancel()
	return l.Release(ctx)
}

func (e *Env) read(ctx context.Context, r Reader, name string) error {
	ctx, cancel := e.call(ctx)
	defer cancel()
	return r.Read(ctx, name)
}

func (e *Env) write(ctx context.Context, s CanStore, name string, data []byte) error {
	ctx, cancel := e.call(ctx)
	defer cancel()
	return s.Write(ctx, name, data)
}

func (e *Env) open(ctx context.Context) (Conn, error) {
	ctx, cancel := e.call(ctx)
	defer cancel()
	return e.Target.Open(ctx)
}

func (e *Env) startSession(ctx context.Context, conn Conn) (Session, error) {
	ctx, cancel := e.call(ctx)
	defer cancel()
	return conn.Session(ctx)
}

func (e *Env) endSession(ctx context.Context, s Session) error {
	ctx, cancel := e.call(ctx)
	defer cancel()
	return s.Close(ctx)
}
