package loadgen

import "context"

// call gives one call to the server its context: a caller's own, with the deadline of the load.
func (c *Env) call(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.Deadline == 0 {
		return ctx, noDeadline
	}
	return context.WithTimeout(ctx, c.Deadline)
}

func noDeadline() {}

func (c *Env) acquire(ctx context.Context, a Acquirer, name string) (Lease, error) {
	ctx, cancel := c.call(ctx)
	defer cancel()
	return a.Acquire(ctx, name)
}

func (c *Env) release(ctx context.Context, l Lease) error {
	ctx, cancel := c.call(ctx)
	defer cancel()
	return l.Release(ctx)
}

func (c *Env) read(ctx context.Context, r Reader, name string) error {
	ctx, cancel := c.call(ctx)
	defer cancel()
	return r.Read(ctx, name)
}

func (c *Env) write(ctx context.Context, s CanStore, name string, data []byte) error {
	ctx, cancel := c.call(ctx)
	defer cancel()
	return s.Write(ctx, name, data)
}

func (c *Env) watchOnce(ctx context.Context, s CanWatchOnce, name string) ([]byte, func(context.Context) (bool, error), error) {
	ctx, cancel := c.call(ctx)
	defer cancel()
	return s.WatchOnce(ctx, name)
}

func (c *Env) open(ctx context.Context) (Conn, error) {
	ctx, cancel := c.call(ctx)
	defer cancel()
	return c.Target.Open(ctx)
}

func (c *Env) startSession(ctx context.Context, conn Conn) (Session, error) {
	ctx, cancel := c.call(ctx)
	defer cancel()
	return conn.Session(ctx)
}

func (c *Env) endSession(ctx context.Context, s Session) error {
	ctx, cancel := c.call(ctx)
	defer cancel()
	return s.Close(ctx)
}
