package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// echoMessage is the length of a message, in bytes, and the others are what it says about the lock,
// and where, as in package limits, which the programs that are compared do not need.
const (
	echoMessage  = 64
	echoLockByte = 8
	echoAcquire  = 1
	echoRelease  = 2
)

// LoggedEchoLimit is an echo over a raft log as a System: what the event loop, the engine and the
// log alone take for a request that is synced before it is answered. Two are a pair. Binary is the
// program of bench/cmd.
type LoggedEchoLimit struct {
	Binary string
	Groups int // raft groups; 0: one
}

// Name says gnet echo over dragonboat.
func (l *LoggedEchoLimit) Name() string { return LoggedEcho }

// Version asks the program which engine it was built with.
func (l *LoggedEchoLimit) Version(ctx context.Context) (string, error) {
	v, err := limitVersion(ctx, l.Binary, "dragonboat")
	return v + "; 64 bytes there and back, synced in a batch on the append-only log, one batch at a time, one replica, or three", err
}

// WithShards has so many raft groups, each with a batch at a time.
func (l *LoggedEchoLimit) WithShards(n int) System {
	return &LoggedEchoLimit{Binary: l.Binary, Groups: n}
}

// Start starts the echo.
func (l *LoggedEchoLimit) Start(ctx context.Context, dir string) (*Server, error) {
	raft, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	return startEcho(ctx, dir, l.Binary, loggedEchoPlan,
		"logged-echo", "--raft", raft, "--dir", dir, "--groups", strconv.Itoa(max(1, l.Groups)))
}

// StartCluster starts three members, of which the first one leads and answers.
func (l *LoggedEchoLimit) StartCluster(ctx context.Context, dir string) (*Server, error) {
	binary, err := filepath.Abs(l.Binary)
	if err != nil {
		return nil, err
	}
	addr, err := FreeAddresses(1 + Servers)
	if err != nil {
		return nil, err
	}
	members := addr[1:]
	return StartServers(ctx, dir, Servers, func(ctx context.Context, i int, dir string) (*Process, error) {
		args := []string{"limit", "logged-echo", "--raft", members[i], "--members", strings.Join(members, ","), "--dir", dir}
		answers := members[i]
		if i == 0 {
			answers = addr[0]
			args = append(args, "--listen", answers)
		}
		return StartProcess(ctx, dir, func(ctx context.Context) error { return Dial(ctx, answers) }, binary, args...)
	}, func(w Workload) (Plan, error) { return loggedEchoPlan(addr[0], w) })
}

// loggedEchoPlan has as many connections as ours has for the same work.
func loggedEchoPlan(addr string, w Workload) (Plan, error) {
	ours, err := signalboxPlan(addr)(w)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Connections: ours.Connections}
	switch w {
	case LockPairs, SteadyRate, OwnConnections, SingleCaller:
		p.Target = loggedEchoTarget{addr: addr}
	case Handoffs:
		p.Target = loggedEchoTarget{addr: addr, lock: true}
	case SessionStarts:
		p.Target = loggedEchoTarget{addr: addr, logStarts: true}
	default:
		return Plan{}, ErrUnsupported
	}
	return p, nil
}

// loggedEchoTarget acquires and releases by a message each, which says nothing unless there is a
// lock: else names are none to it, and sessions never are. Many calls share a connection. What they
// want to send while one of them writes goes out together with the next write.
type loggedEchoTarget struct {
	addr      string
	logStarts bool // the start of a session is a message too
	lock      bool // there is one lock, which all acquire
}

// Name implements loadgen.Target, like the next two.
func (t loggedEchoTarget) Name() string { return "logged echo at " + t.addr }

func (t loggedEchoTarget) Code(error) string { return "other" }

func (t loggedEchoTarget) Open(ctx context.Context) (loadgen.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", t.addr)
	if err != nil {
		return nil, err
	}
	l := &loggedEchoConn{conn: c, target: t, calls: map[uint64]chan struct{}{}, closed: make(chan struct{})}
	go l.read()
	return l, nil
}

type loggedEchoConn struct {
	conn   net.Conn
	target loggedEchoTarget
	closed chan struct{}

	mu      sync.Mutex
	last    uint64
	calls   map[uint64]chan struct{} // by the first bytes of the message
	waiting []byte                   // messages to send
	spare   []byte
	writing bool // a caller sends what waits, until nothing does
}

func (c *loggedEchoConn) read() {
	defer close(c.closed)
	r := bufio.NewReader(c.conn)
	var b [echoMessage]byte
	for {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return
		}
		id := binary.LittleEndian.Uint64(b[:])
		c.mu.Lock()
		done := c.calls[id]
		delete(c.calls, id)
		c.mu.Unlock()
		if done != nil {
			close(done)
		}
	}
}

// call sends a message, which does that with the lock if there is one, and waits for its answer.
func (c *loggedEchoConn) call(ctx context.Context, lock byte) error {
	done := make(chan struct{})
	var b [echoMessage]byte
	if c.target.lock {
		b[echoLockByte] = lock
	}
	c.mu.Lock()
	c.last++
	binary.LittleEndian.PutUint64(b[:], c.last)
	c.calls[c.last] = done
	c.waiting = append(c.waiting, b[:]...)
	err := c.send()
	c.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-c.closed:
		return errors.New("the connection is closed")
	case <-ctx.Done():
		if lock == echoAcquire && c.target.lock { // it may get the lock yet
			go c.releaseAfter(done)
		}
		return context.Cause(ctx)
	}
}

// releaseAfter releases the lock when an acquire that was given up is answered.
func (c *loggedEchoConn) releaseAfter(acquired <-chan struct{}) {
	select {
	case <-acquired:
		_ = c.call(context.Background(), echoRelease)
	case <-c.closed:
	}
}

// send writes what waits, unless another caller does. The caller holds mu, which is free during a
// write.
func (c *loggedEchoConn) send() error {
	if c.writing {
		return nil
	}
	c.writing = true
	defer func() { c.writing = false }()
	for len(c.waiting) > 0 {
		b := c.waiting
		c.waiting = c.spare[:0]
		c.mu.Unlock()
		_, err := c.conn.Write(b)
		c.mu.Lock()
		if c.spare = b; err != nil {
			return err // the others learn it from the reader
		}
	}
	return nil
}

// Session implements loadgen.Conn.
func (c *loggedEchoConn) Session(ctx context.Context) (loadgen.Session, error) {
	var err error
	if c.target.logStarts {
		err = c.call(ctx, 0)
	}
	return loggedEchoSession{c}, err
}

// Close implements loadgen.Conn.
func (c *loggedEchoConn) Close() error {
	err := c.conn.Close()
	<-c.closed
	return err
}

type loggedEchoSession struct{ *loggedEchoConn }

// Close implements loadgen.Session. There is nothing to end.
func (loggedEchoSession) Close(context.Context) error { return nil }

// Acquirer implements loadgen.CanAcquire.
func (s loggedEchoSession) Acquirer(loadgen.AcquireOptions) loadgen.Acquirer { return s }

// Acquire implements loadgen.Acquirer.
func (s loggedEchoSession) Acquire(ctx context.Context, _ string) (loadgen.Lease, error) {
	return s, s.call(ctx, echoAcquire)
}

// Release implements loadgen.Lease.
func (s loggedEchoSession) Release(ctx context.Context) error { return s.call(ctx, echoRelease) }
