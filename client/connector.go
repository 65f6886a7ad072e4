package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/dial"
	"github.com/signalbox-dev/signalbox/protocol"
)

// sharedAttempt is an attempt that several callers wait for.
type sharedAttempt struct {
	done        chan struct{}
	skipBackoff chan struct{} // capacity 1: the wait before the attempt is over
	start       *helloStart   // goes out with the hello; nil: none does
	cn          *conn
	err         error
}

func (f *sharedAttempt) wait(ctx context.Context) error {
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		return markUndecided(context.Cause(ctx))
	}
}

// connector keeps the connection to one instance, and makes the next one. At most one attempt runs
// at a time, with back-off between attempts that fail or succeed too often. Without callers there
// are no attempts.
type connector struct {
	c           *cluster
	instance    uint64 // 0: whichever answers
	current     atomic.Pointer[conn]
	mu          sync.Mutex
	addresses   []string
	attempt     *sharedAttempt
	backoff     backoff
	connectedAt time.Duration // when the last connection was made
}

// errMapChanged ends a wait for a connection because the cluster map has changed, which may name
// another instance by now.
var errMapChanged = fmt.Errorf("%w: the cluster map has changed", ErrUnreachable)

// live is the connection if there is one that is not lost, or nil.
func (l *connector) live() *conn {
	if cn := l.current.Load(); cn != nil && !cn.isLost() {
		return cn
	}
	return nil
}

// get is the connector's connection, made if there is none. The error of a failed attempt is
// ErrUnreachable or a *permanentError; calling again waits for the next attempt. If moved is not
// nil and ends first, the error is errMapChanged.
func (l *connector) get(ctx context.Context, moved <-chan struct{}) (*conn, error) {
	if cn := l.live(); cn != nil {
		return cn, nil
	}
	l.mu.Lock()
	if cn := l.live(); cn != nil {
		l.mu.Unlock()
		return cn, nil
	}
	f := l.attemptLocked()
	l.mu.Unlock()
	if f == nil {
		return nil, ErrClientClosed
	}
	select {
	case <-f.done:
		return f.cn, f.err
	case <-moved:
		return nil, errMapChanged
	case <-ctx.Done():
		return nil, markUndecided(context.Cause(ctx))
	}
}

// dialInBackground starts an attempt if there is no connection, and does not wait.
func (l *connector) dialInBackground(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live() == nil {
		l.know(address)
		l.attemptLocked()
	}
}

// attemptLocked is the attempt that is under way, begun if there is none; nil when the client is
// closed. mu is held.
func (l *connector) attemptLocked() *sharedAttempt {
	f := l.attempt
	if f == nil {
		f = &sharedAttempt{done: make(chan struct{}), skipBackoff: make(chan struct{}, 1)}
		addresses := slices.Clone(l.addresses)
		if l.connectedAt > 0 && l.c.clock.now()-l.connectedAt > 2*reconnectMax {
			l.backoff.failures = 0 // long ago
		}
		wait := l.backoff.next()
		if l.connectedAt == 0 {
			wait = 0 // the first time
		}
		if ttl := l.c.shortestTimeout(); ttl > 0 {
			wait = min(wait, max(reconnectBase, ttl/8)) // a session's deadline is nearer than the longest back-off
		}
		l.connectedAt = max(l.connectedAt, 1)
		if !l.c.run(func() { l.dial(l.c.ctx, f, addresses, wait) }) {
			return nil
		}
		l.attempt = f
	}
	return f
}

// resetBackoff ends the back-off: the instance was just named, so earlier failures say little.
func (l *connector) resetBackoff() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.backoff.failures = 0
	if l.attempt != nil {
		wake(l.attempt.skipBackoff)
	}
}

// connectFirst makes the first connection of a client that nobody else uses yet, and takes the map
// that comes with it. It runs on the caller's goroutine: with the connection's reader it is the
// only one that a new client needs.
func (c *cluster) connectFirst(ctx context.Context, start *helloStart) error {
	l := c.bootstrap
	f := &sharedAttempt{done: make(chan struct{}), skipBackoff: make(chan struct{}, 1), start: start}
	l.mu.Lock()
	l.attempt, l.connectedAt = f, 1
	l.mu.Unlock()
	l.dial(ctx, f, slices.Clone(l.addresses), 0)
	if f.err != nil {
		return f.err
	}
	if reply := awaitHelloMap(ctx, f.cn); reply != nil {
		return c.useMap(nil, reply, f.cn)
	}
	return nil // it is asked for again
}

// dialled is a connection that was made, and the start that went out with its hello, if one did.
type dialled struct {
	cn      *conn
	address string
	start   *helloStart
}

// dial tries the addresses until ctx ends, and ends the attempt.
func (l *connector) dial(ctx context.Context, f *sharedAttempt, addresses []string, wait time.Duration) {
	defer close(f.done)
	if wait > 0 {
		sleep(ctx, f.skipBackoff, wait)
	}
	race := dial.Race[dialled]{
		Lookup: l.c.cfg.lookup,
		Go:     l.c.run,
		Connect: func(ctx context.Context, to dial.Target) (dialled, error) {
			d, err := l.connect(ctx, to, f.start)
			if err != nil && ctx.Err() == nil {
				l.c.cfg.Logger.Debug("connection could not be made", "address", to.String(), "error", err)
			}
			return d, err
		},
		Discard: func(d dialled) { d.cn.end(errors.New("another address answered first")) },
	}
	won, ok, failed := race.Run(ctx, addresses)
	if ok {
		f.cn = l.c.adopt(won.cn, won.address)
		if f.start != nil {
			*f.start = *won.start
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempt = nil
	l.connectedAt = l.c.clock.now()
	switch {
	case ok:
	case l.c.ctx.Err() != nil:
		f.err = ErrClientClosed
	case len(failed) > 0:
		f.err = l.c.worst(failed)
	case ctx.Err() != nil:
		f.err = fmt.Errorf("%w: %w", ErrUnreachable, context.Cause(ctx))
	default:
		f.err = fmt.Errorf("%w: no address is known", ErrUnreachable)
	}
}

// connect makes a connection to the connector's instance. One to another instance is kept for that.
func (l *connector) connect(ctx context.Context, to dial.Target, start *helloStart) (dialled, error) {
	if start != nil {
		start = newHelloStart(start.s) // attempts overlap
	}
	cn, err := l.c.connect(ctx, to, l.c.routes.Load() == nil, start)
	if err == nil && l.instance != 0 && cn.instance != l.instance {
		l.c.adopt(cn, to.Address)
		err = fmt.Errorf("%s is instance %d, not %d", to, cn.instance, l.instance)
	}
	return dialled{cn, to.Address, start}, err
}

// worst chooses the error of an attempt among those of its addresses: one that another attempt
// would get again, or else a mistake in the configuration, which says more than what may pass. If
// there are only such mistakes, a client that was never connected gives up. So does one that finds
// another cluster, and has no connection: its own may be gone. With one, it is only the address of
// an instance that has changed hands, and its shards are led elsewhere by now.
func (c *cluster) worst(failed []error) error {
	var passing, mistake error
	for _, err := range failed {
		var refused *permanentError
		switch {
		case errors.As(err, &refused):
			return err
		case errors.Is(err, ErrHandshake), errors.Is(err, protocol.StatusUnauthenticated):
			mistake = err
		default:
			passing = err
		}
	}
	if passing == nil && (c.routes.Load() == nil || errors.Is(mistake, ErrOtherCluster) && !c.connected()) {
		return &permanentError{mistake}
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, cmp.Or(mistake, passing))
}

// connected says whether there is a connection that is not lost.
func (c *cluster) connected() bool {
	return slices.ContainsFunc(c.allConns(), func(cn *conn) bool { return !cn.isLost() })
}

// adopt makes a new connection the one to its instance, or closes it if there is one already. A map
// that the instance announced before is fetched.
func (c *cluster) adopt(cn *conn, address string) *conn {
	if r := c.routes.Load(); r != nil && cn.hello.MapVersion > r.version {
		defer c.fetchAnnouncedMap(cn.hello.MapVersion, cn)
	}
	l := c.connector(cn.instance, address)
	l.mu.Lock()
	defer l.mu.Unlock()
	if have := l.current.Load(); have != nil && have != cn && !have.isLost() {
		cn.end(errors.New("another connection to the same instance is in use"))
		return have
	}
	l.current.Store(cn)
	l.connectedAt = c.clock.now()
	c.cfg.Logger.Debug("connected", "address", address, "instance", cn.instance)
	if c.ctx.Err() != nil {
		cn.end(ErrClientClosed)
	}
	return cn
}

func (c *cluster) connEnded(cn *conn) {
	c.cfg.Logger.Debug("connection lost", "instance", cn.instance, "error", cn.err)
	c.mu.Lock()
	l := c.connectors[cn.instance]
	c.mu.Unlock()
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.clock.now()-l.connectedAt > minConnLifetime {
		l.backoff.failures = 0 // it lived
	}
}

// connector finds or makes the connector of an instance. address, if not empty, is tried first from
// now on.
func (c *cluster) connector(instance uint64, address string) *connector {
	c.mu.Lock()
	l := c.connectorLocked(instance)
	c.mu.Unlock()
	if address != "" {
		l.mu.Lock()
		if i := slices.Index(l.addresses, address); i != 0 {
			if i > 0 {
				l.addresses = slices.Delete(l.addresses, i, i+1)
			}
			l.addresses = slices.Insert(l.addresses, 0, address)
		}
		l.mu.Unlock()
	}
	return l
}

// connectorLocked is connector without an address. mu is held.
func (c *cluster) connectorLocked(instance uint64) *connector {
	l := c.connectors[instance]
	if l == nil {
		l = &connector{c: c, instance: instance, backoff: backoff{base: reconnectBase, max: reconnectMax}}
		c.connectors[instance] = l
	}
	return l
}

func (c *cluster) allConns() (list []*conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.connectors {
		if cn := l.current.Load(); cn != nil {
			list = append(list, cn)
		}
	}
	return list
}

// know keeps the address that worked last and those among the client's endpoints, adds others, and
// drops what is left: an instance may have had many addresses, and each that does not answer takes
// its time. mu is held.
func (l *connector) know(others ...string) {
	var list []string
	for i, a := range l.addresses {
		if i == 0 || slices.Contains(l.c.cfg.Endpoints, a) {
			list = append(list, a)
		}
	}
	for _, a := range others {
		if a != "" && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	l.addresses = list
}

// getVia is get with the address from the map, which is tried after those that worked.
func (l *connector) getVia(ctx context.Context, address string, moved <-chan struct{}) (*conn, error) {
	if cn := l.live(); cn != nil {
		return cn, nil
	}
	l.mu.Lock()
	others := []string{address}
	if r := l.c.routes.Load(); len(r.instances) <= 1 {
		// The only one: whatever endpoint there is leads to it.
		others = append(others, l.c.cfg.Endpoints...)
	}
	l.know(others...)
	l.mu.Unlock()
	return l.get(ctx, moved)
}
