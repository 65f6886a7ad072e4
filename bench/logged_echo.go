package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// echoMessage is the length of a message, in bytes, as in package limits.
const echoMessage = 64

// LoggedEchoLimit is an echo over a raft log as a System: what the event loop, the engine and the
// log alone take for a request that is synced before it is answered. Two are a pair. Binary is the
// program of bench/cmd.
type LoggedEchoLimit struct{ Binary string }

// Name says gnet echo over dragonboat.
func (l *LoggedEchoLimit) Name() string { return LoggedEcho }

// Version asks the program which engine it was built with.
func (l *LoggedEchoLimit) Version(ctx context.Context) (string, error) {
	v, err := limitVersion(ctx, l.Binary, "dragonboat")
	return v + "; 64 bytes there and back, synced in a batch on the append-only log, one batch at a time, one replica", err
}

// Start starts the echo.
func (l *LoggedEchoLimit) Start(ctx context.Context, dir string) (*Server, error) {
	raft, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	return startEcho(ctx, dir, l.Binary, SteadyRate, func(addr string) Plan {
		return Plan{Target: loggedEchoTarget{addr}, Connections: RateConnections}
	}, "logged-echo", "--raft", raft, "--dir", dir)
}

// loggedEchoTarget acquires and releases by a message each, which says nothing: names and sessions
// are none to it. Many calls share a connection.
type loggedEchoTarget struct{ addr string }

// Name implements loadgen.Target, like the next two.
func (t loggedEchoTarget) Name() string { return "logged echo at " + t.addr }

func (t loggedEchoTarget) Code(error) string { return "other" }

func (t loggedEchoTarget) Open(ctx context.Context) (loadgen.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", t.addr)
	if err != nil {
		return nil, err
	}
	l := &loggedEchoConn{conn: c, calls: map[uint64]chan struct{}{}, closed: make(chan struct{})}
	go l.read()
	return l, nil
}

type loggedEchoConn struct {
	conn   net.Conn
	closed chan struct{}

	mu    sync.Mutex
	last  uint64
	calls map[uint64]chan struct{} // by the first bytes of the message
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

func (c *loggedEchoConn) call(ctx context.Context) error {
	done := make(chan struct{})
	var b [echoMessage]byte
	c.mu.Lock()
	c.last++
	binary.LittleEndian.PutUint64(b[:], c.last)
	c.calls[c.last] = done
	_, err := c.conn.Write(b[:])
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
		return context.Cause(ctx)
	}
}

// Session implements loadgen.Conn.
func (c *loggedEchoConn) Session(context.Context) (loadgen.Session, error) {
	return loggedEchoSession{c}, nil
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
	return s, s.call(ctx)
}

// Release implements loadgen.Lease.
func (s loggedEchoSession) Release(ctx context.Context) error { return s.call(ctx) }
