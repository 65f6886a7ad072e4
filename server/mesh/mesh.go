package mesh

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

// Mesh is one instance's end of everything between instances. Its methods may be called from any goroutine.
type Mesh struct {
	cfg    Config
	log    *slog.Logger
	key    []byte
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	count  counters
	lines  lines
	rate   *rate

	onSend  [256]func(from string, payload []byte)                                   // set before Start
	handle  [256]func(ctx context.Context, from string, body []byte) ([]byte, error) // the same
	onEnded func(ctx context.Context, address string)                                // the same; nil: nothing
	engine  engine
	own     *inbox        // one-way messages to this instance itself
	ownCap  chan struct{} // calls to this instance itself

	mu       sync.Mutex
	started  bool
	stopped  bool
	listener net.Listener
	conns    map[*conn]struct{}
	peers    map[string]*peer
	lanes    map[string]*lane
	down     map[string]time.Time // peers to which no lane could be opened, and when the next try may be
	ending   map[string]bool      // peers whose process may have ended: that is being found out
	waiting  waiting
}

var errMeshClosed = errors.New("this instance's connections to others are closed")

// New makes a mesh that neither listens nor connects before Start.
func New(cfg Config) (*Mesh, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	token := cfg.Token
	if len(token) == 0 {
		token = make([]byte, 32) // nobody else can know it
		rand.Read(token)
	}
	m := &Mesh{
		cfg: cfg, log: cfg.Logger, key: keyOf(token), rate: newRate(cfg.Limits.SnapshotRate),
		conns: make(map[*conn]struct{}), peers: make(map[string]*peer), lanes: make(map[string]*lane), down: make(map[string]time.Time), ending: make(map[string]bool),
		ownCap: make(chan struct{}, cfg.Limits.Handlers),
	}
	m.cfg.Token = nil
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.waiting.init(cfg.Limits.Handshakes, cfg.Limits.HandshakesPerHost)
	m.own = m.newInbox()
	return m, nil
}

// OnSend says what to do with one-way messages of a kind. Call it before Start. The messages of one peer come in order, one at a time; f owns the payload,
// and must not take long: what comes meanwhile waits, and too much of it is lost.
func (m *Mesh) OnSend(kind uint8, f func(from string, payload []byte)) { m.onSend[kind] = f }

// Handle says what to do with calls of a method. Call it before Start. Calls run at the same time; f owns the body. ctx ends when the caller no longer
// waits, its deadline passes, the connection is lost or the mesh closes. A *protocol.Error travels to the caller; any other error becomes StatusInternal with its
// text.
func (m *Mesh) Handle(method uint8, f func(ctx context.Context, from string, body []byte) ([]byte, error)) {
	m.handle[method] = f
}

// Start listens.
func (m *Mesh) Start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return errMeshClosed
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
func (m *Mesh) Address() string { return m.cfg.Advertise }

// Close ends all connections, fails what waits, and waits for handlers to return. The raft engine should be closed before.
func (m *Mesh) Close() error {
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
	m.waiting.closeAll()
	for _, c := range conns {
		c.close()
	}
	m.wg.Wait()
	return nil
}

func (m *Mesh) identity() identity {
	cluster := m.cfg.Cluster()
	return identity{key: m.key, address: m.cfg.Advertise, cluster: cluster[:min(len(cluster), maxName)]}
}

// start runs f on a goroutine that Close waits for, unless the mesh is closed.
func (m *Mesh) start(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return false
	}
	m.wg.Go(f)
	return true
}

// track makes Close close the connection.
func (m *Mesh) track(c *conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return false
	}
	m.conns[c] = struct{}{}
	return true
}

func (m *Mesh) untrack(c *conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.conns[c]
	delete(m.conns, c)
	return ok
}

// bad counts a connection that is closed for what it carried.
func (m *Mesh) bad(c *conn, err error) {
	m.count.badFrames.Add(1)
	m.line("connection of an instance is closed for what it carried", "peer", c.peer, "purpose", c.purpose.String(), "error", err)
}

// guard runs code that bytes of a peer reach and that must not end the process. It reports whether f returned.
func (m *Mesh) guard(what, peer string, f func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			m.count.handlerPanicked.Add(1)
			m.log.Error("panic is recovered", "in", what, "peer", peer, "panic", r, "stack", string(debug.Stack()))
		}
	}()
	f()
	return true
}

// lines bounds how much is said about what strangers can cause.
type lines struct {
	mu       sync.Mutex
	from     time.Time
	said     int
	withheld int
}

const (
	linesPerPeriod = 10
	linesPeriod    = 10 * time.Second
)

// line writes a warning, unless there were many lately.
func (m *Mesh) line(text string, args ...any) {
	l := &m.lines
	l.mu.Lock()
	now := time.Now()
	if now.Sub(l.from) > linesPeriod {
		l.from, l.said = now, 0
	}
	if l.said >= linesPerPeriod {
		l.withheld++
		l.mu.Unlock()
		return
	}
	l.said++
	withheld := l.withheld
	l.withheld = 0
	l.mu.Unlock()
	if withheld > 0 {
		args = append(args, "withheld", withheld)
	}
	m.log.Warn(text, args...)
}
