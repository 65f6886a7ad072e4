package peer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"time"
)

// Transport is one instance's end of everything between instances. Its methods may be called from any goroutine.
type Transport struct {
	cfg          Config
	log          *slog.Logger
	key          []byte
	ctx          context.Context // ends with Close
	cancel       context.CancelFunc
	wg           sync.WaitGroup
	counters     counters
	warnings     warningLimiter
	snapshotRate *rateLimiter

	messageHandlers [256]func(from string, payload []byte)                                   // set before Start
	callHandlers    [256]func(ctx context.Context, from string, body []byte) ([]byte, error) // the same
	onProcessExit   func(ctx context.Context, address string)                                // the same; nil: nothing
	engine          engine
	localInbox      *inbox        // one-way messages to this instance itself
	localCalls      chan struct{} // calls to this instance itself

	mu          sync.Mutex
	started     bool
	stopped     bool
	listener    net.Listener
	conns       map[*conn]struct{}
	senders     map[string]*sender
	sharedConns map[string]*sharedConn
	nextDial    map[string]time.Time // peers to which no lane could be opened, and when the next try may be
	exitChecks  map[string]bool      // peers whose process may have ended: that is being found out
	pending     pendingConns
}

var errTransportClosed = errors.New("this instance's connections to others are closed")

// New makes a mesh that neither listens nor connects before Start.
func New(cfg Config) (*Transport, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	token := cfg.Token
	if len(token) == 0 {
		token = make([]byte, 32) // nobody else can know it
		rand.Read(token)
	}
	m := &Transport{
		cfg: cfg, log: cfg.Logger, key: keyOf(token), snapshotRate: newRate(cfg.Limits.SnapshotRate),
		conns: make(map[*conn]struct{}), senders: make(map[string]*sender), sharedConns: make(map[string]*sharedConn), nextDial: make(map[string]time.Time), exitChecks: make(map[string]bool),
		localCalls: make(chan struct{}, cfg.Limits.Handlers),
	}
	m.cfg.Token = nil
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.pending.init(cfg.Limits.Handshakes, cfg.Limits.HandshakesPerHost)
	m.localInbox = m.newInbox()
	return m, nil
}

// HandleMessage says what to do with one-way messages of a kind. Call it before Start. The messages of one peer come in order, one at a time; f owns the payload,
// and must not take long: what comes meanwhile waits, and too much of it is lost.
func (m *Transport) HandleMessage(kind uint8, f func(from string, payload []byte)) {
	m.messageHandlers[kind] = f
}

// HandleCall says what to do with calls of a method. Call it before Start. Calls run at the same time; f owns the body. ctx ends when the caller no longer
// waits, its deadline passes, the connection is lost or the mesh closes. A *protocol.Error travels to the caller; any other error becomes StatusInternal with its
// text.
func (m *Transport) HandleCall(method uint8, f func(ctx context.Context, from string, body []byte) ([]byte, error)) {
	m.callHandlers[method] = f
}

// Start listens.
func (m *Transport) Start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return errTransportClosed
	}
	if m.started {
		return errors.New("connections between instances are started already")
	}
	l, err := m.cfg.Network.Listen(m.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen for instances on %s: %w; is another server running, or choose another address", m.cfg.Listen, err)
	}
	m.started, m.listener = true, l
	m.wg.Add(1)
	go m.acceptLoop(l)
	return nil
}

// Address is what this instance advertises.
func (m *Transport) Address() string { return m.cfg.Advertise }

// Close ends all connections, fails what waits, and waits for handlers to return. The raft engine should be closed before.
func (m *Transport) Close() error {
	m.mu.Lock()
	if m.stopped {
		m.mu.Unlock()
		m.wg.Wait()
		return nil
	}
	m.stopped = true
	l := m.listener
	conns := make([]*conn, 0, len(m.conns))
	for c := range m.conns {
		conns = append(conns, c)
	}
	m.mu.Unlock()
	m.cancel()
	if l != nil {
		_ = l.Close()
	}
	m.pending.closeAll()
	for _, c := range conns {
		c.close()
	}
	m.wg.Wait()
	return nil
}

func (m *Transport) identity() identity {
	cluster := m.cfg.Cluster()
	return identity{key: m.key, address: m.cfg.Advertise, cluster: cluster[:min(len(cluster), maxName)]}
}

// start runs f on a goroutine that Close waits for, unless the mesh is closed.
func (m *Transport) start(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return false
	}
	m.wg.Go(f)
	return true
}

// track makes Close close the connection.
func (m *Transport) track(c *conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return false
	}
	m.conns[c] = struct{}{}
	return true
}

func (m *Transport) untrack(c *conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.conns[c]
	delete(m.conns, c)
	return ok
}

// closeMalformed counts a connection that is closed for what it carried.
func (m *Transport) closeMalformed(c *conn, err error) {
	m.counters.badFrames.Add(1)
	m.warn("connection of an instance is closed for what it carried", "peer", c.peer, "purpose", c.purpose.String(), "error", err)
}

// guard runs code that bytes of a peer reach and that must not end the process. It reports whether f returned.
func (m *Transport) guard(what, peer string, f func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			m.counters.handlerPanicked.Add(1)
			m.log.Error("panic is recovered", "in", what, "peer", peer, "panic", r, "stack", string(debug.Stack()))
		}
	}()
	f()
	return true
}

// warningLimiter bounds how much is said about what strangers can cause.
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

// warn writes a warning, unless there were many lately.
func (m *Transport) warn(text string, args ...any) {
	l := &m.warnings
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
	m.log.Warn(text, args...)
}
