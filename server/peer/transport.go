package peer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Transport carries everything between this instance and the others. Its methods are safe for
// concurrent use.
type Transport struct {
	cfg          Config
	log          *slog.Logger
	keys         atomic.Pointer[[][]byte] // of the join tokens
	ctx          context.Context          // ends with Close
	cancel       context.CancelFunc
	wg           sync.WaitGroup
	stats        Stats
	warnings     warningLimiter
	snapshotRate *rateLimiter

	messageHandlers [256]func(from string, payload []byte)                                   // set before Start
	callHandlers    [256]func(ctx context.Context, from string, body []byte) ([]byte, error) // the same
	engine          engine
	exits           exitChecks
	dialErrors      dialErrors
	localInbox      *inbox        // one-way messages to this instance
	localCalls      chan struct{} // calls to this instance

	mu          sync.Mutex
	started     bool
	stopped     bool
	listener    net.Listener
	conns       map[*conn]struct{}
	senders     map[string]*sender
	sharedConns map[string]*sharedConn
	nextDial    map[string]time.Time // after a failed dial of a shared connection
	pending     pendingConns
}

var errTransportClosed = errors.New("this instance's connections to others are closed")

// New returns a transport that neither listens nor connects before Start.
func New(cfg Config) (*Transport, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	tokens := cfg.Tokens
	if len(tokens) == 0 {
		tokens = [][]byte{make([]byte, 32)} // nobody else knows it
		rand.Read(tokens[0])
	}
	m := &Transport{
		cfg: cfg, log: cfg.Logger, snapshotRate: newRate(cfg.Limits.SnapshotRate),
		conns: make(map[*conn]struct{}), senders: make(map[string]*sender),
		sharedConns: make(map[string]*sharedConn), nextDial: make(map[string]time.Time),
		exits:      exitChecks{busy: make(map[string]bool)},
		localCalls: make(chan struct{}, cfg.Limits.Handlers),
	}
	m.SetTokens(tokens)
	m.cfg.Tokens = nil
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.pending.init(cfg.Limits.Handshakes, cfg.Limits.HandshakesPerHost)
	m.localInbox = m.newInbox()
	m.dialErrors.max = cfg.Limits.Peers
	return m, nil
}

// SetTokens replaces the join tokens for the connections that are made from now on: the first one is
// proved when this instance dials, and each is accepted of others. It may be called at any time.
func (t *Transport) SetTokens(tokens [][]byte) {
	keys := make([][]byte, len(tokens))
	for i, token := range tokens {
		keys[i] = keyOf(token)
	}
	t.keys.Store(&keys)
}

// HandleMessage sets the handler of a kind of one-way messages. Call it before Start. The messages
// of a peer arrive in order, one at a time. f owns the payload and must be quick: messages wait
// meanwhile, and too many are lost.
func (t *Transport) HandleMessage(kind uint8, f func(from string, payload []byte)) {
	t.messageHandlers[kind] = f
}

// HandleCall sets the handler of a method. Call it before Start. Calls run concurrently; f owns the
// body. ctx ends when the caller stops waiting, its deadline passes, the connection is lost or the
// transport closes. A *protocol.Error is sent to the caller; any other error becomes StatusInternal
// with its text.
func (t *Transport) HandleCall(method uint8, f func(ctx context.Context, from string, body []byte) ([]byte, error)) {
	t.callHandlers[method] = f
}

// OnProcessExit sets the function to call when the process of the instance at an address has ended,
// by this instance's knowledge: a raft connection from it was closed, and its address refuses
// connections. Call it before Start. f runs on its own goroutine, one at a time for an address.
func (t *Transport) OnProcessExit(f func(ctx context.Context, address string)) { t.exits.f = f }

// ProcessExited reports whether the address of an instance refuses connections: no process listens
// there.
func (t *Transport) ProcessExited(ctx context.Context, address string) bool {
	return processExited(ctx, t.cfg.Network, address)
}

// Reach connects to the instance that advertises an address, and disconnects. Nil: it can be
// reached. Another instance that answers there is an error.
func (t *Transport) Reach(ctx context.Context, address string) error {
	if address = normalize(address); address == t.cfg.Advertise {
		return ErrAddress
	}
	if err := checkAddress(address); err != nil {
		return err
	}
	c, err := t.dialAs(ctx, address, purposeCalls, true)
	if err == nil {
		c.closeDialed()
	}
	return err
}

// Unreached reports why the instance that advertises an address is not reached, as far as this one
// knows: Err is nil if the last attempt succeeded, there was none, or the instance does not run.
func (t *Transport) Unreached(address string) Unreached {
	address = normalize(address)
	from := ""
	t.mu.Lock()
	for c := range t.conns {
		if !c.dialer && c.peer == address {
			from = hostOf(c.nc)
		}
	}
	t.mu.Unlock()
	return t.dialErrors.unreached(address, from)
}

// Stats returns the counters, to be read.
func (t *Transport) Stats() *Stats { return &t.stats }

// Start starts to listen.
func (t *Transport) Start() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return errTransportClosed
	}
	if t.started {
		return errors.New("connections between instances are started already")
	}
	l, err := t.cfg.Network.Listen(t.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen for instances on %s: %w; is another server running, or choose another address",
			t.cfg.Listen, err)
	}
	t.started, t.listener = true, l
	t.wg.Add(1)
	go t.acceptLoop(l)
	return nil
}

// Address is the advertised address.
func (t *Transport) Address() string { return t.cfg.Advertise }

// dial makes an authenticated connection. The transport's Close closes it. Raft and snapshots are
// for the instance that advertises the address, and for no other one that answers there.
func (t *Transport) dial(ctx context.Context, address string, p purpose) (*conn, error) {
	return t.dialAs(ctx, address, p, p != purposeCalls)
}

// dialAs is dial. If strict, another instance that answers at the address is an error.
func (t *Transport) dialAs(ctx context.Context, address string, p purpose, strict bool) (*conn, error) {
	l := &t.cfg.Limits
	t.stats.Dials.Add(1)
	c, err := func() (*conn, error) {
		ctx, cancel := context.WithTimeout(ctx, l.DialTimeout)
		defer cancel()
		defer context.AfterFunc(t.ctx, cancel)()
		nc, err := t.cfg.Network.Dial(ctx, address)
		if err != nil {
			return nil, err
		}
		stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(l.HandshakeTimeout))
		me := t.identity()
		peer, theirs, err := dialHandshake(nc, me, address, p, strict)
		if !stop() && err == nil {
			err = ctx.Err()
		}
		if err != nil {
			_ = nc.Close()
			return nil, err
		}
		_ = nc.SetDeadline(time.Time{})
		c := newConn(t, nc, peer, p, true, me.cluster)
		c.metEarly = theirs == ""
		if !t.track(c) {
			c.close()
			return nil, errTransportClosed
		}
		return c, nil
	}()
	if err != nil {
		t.stats.DialsFailed.Add(1)
		return nil, err
	}
	t.stats.Outbound.Add(1)
	return c, nil
}

// Close closes all connections, fails pending calls, and waits for handlers to return. Close the
// raft engine before.
func (t *Transport) Close() error {
	t.mu.Lock()
	if t.stopped {
		t.mu.Unlock()
		t.wg.Wait()
		return nil
	}
	t.stopped = true
	l := t.listener
	conns := slices.Collect(maps.Keys(t.conns))
	t.mu.Unlock()
	t.cancel()
	if l != nil {
		_ = l.Close()
	}
	t.pending.closeAll()
	for _, c := range conns {
		c.close()
	}
	t.wg.Wait()
	return nil
}

func (t *Transport) identity() identity {
	cluster := t.cfg.Cluster()
	return identity{keys: *t.keys.Load(), address: t.cfg.Advertise, cluster: cluster[:min(len(cluster), maxName)]}
}

// start runs f on a goroutine that Close waits for, unless the transport is closed.
func (t *Transport) start(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return false
	}
	t.wg.Go(f)
	return true
}

// track makes Close close the connection.
func (t *Transport) track(c *conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return false
	}
	t.conns[c] = struct{}{}
	return true
}

func (t *Transport) untrack(c *conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.conns[c]
	delete(t.conns, c)
	return ok
}

// closeMalformed counts a connection that is closed for a malformed frame.
func (t *Transport) closeMalformed(c *conn, err error) {
	t.stats.BadFrames.Add(1)
	t.warn("connection closed after a malformed frame", "peer", c.peer, "purpose", c.purpose.String(), "error", err)
}

// guard runs code that handles a peer's bytes and recovers its panics. It reports whether f
// returned.
func (t *Transport) guard(what, peer string, f func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			t.stats.Panics.Add(1)
			t.log.Error("panic recovered", "in", what, "peer", peer, "panic", r, "stack", string(debug.Stack()))
		}
	}()
	f()
	return true
}

// warningLimiter bounds the warnings that strangers can cause.
type warningLimiter struct {
	mu         sync.Mutex
	from       time.Time
	logged     int
	suppressed int
}

const (
	warningsPerPeriod = 10
	warningPeriod     = 10 * time.Second
)

// warn logs a warning, unless there were many lately.
func (t *Transport) warn(text string, args ...any) {
	l := &t.warnings
	l.mu.Lock()
	now := time.Now()
	if now.Sub(l.from) > warningPeriod {
		l.from, l.logged = now, 0
	}
	if l.logged >= warningsPerPeriod {
		l.suppressed++
		l.mu.Unlock()
		return
	}
	l.logged++
	withheld := l.suppressed
	l.suppressed = 0
	l.mu.Unlock()
	if withheld > 0 {
		args = append(args, "withheld", withheld)
	}
	t.log.Warn(text, args...)
}
