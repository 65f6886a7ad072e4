package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// startFanOut starts a bare gnet server that writes a message to all its watchers: what the system
// calls alone take for a change that watchers with a connection each see.
func (l *EchoLimit) startFanOut(ctx context.Context, dir string) (*Server, error) {
	return startEcho(ctx, dir, l.Binary, func(addr string, w Workload) (Plan, error) {
		if w != OwnWatchers {
			return Plan{}, ErrUnsupported
		}
		return Plan{Target: fanOutTarget{addr}, Connections: loadgen.Each}, nil
	}, "fan-out")
}

// fanOutTarget writes a value by a message, which comes back to each watcher. It keeps nothing.
type fanOutTarget struct{ addr string }

func (t fanOutTarget) Name() string { return "fan-out at " + t.addr }

func (t fanOutTarget) Code(error) string { return "other" }

func (t fanOutTarget) Open(ctx context.Context) (loadgen.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", t.addr)
	if err != nil {
		return nil, err
	}
	f := &fanOutConn{conn: c, closed: make(chan struct{})}
	go f.read()
	return f, nil
}

type fanOutConn struct {
	conn   net.Conn
	closed chan struct{}

	mu       sync.Mutex
	watchers []func(data []byte)
}

// read passes changes to the watchers in turn, since each has a message of its own. A message of
// zeros says that one more watches.
func (c *fanOutConn) read() {
	defer close(c.closed)
	begun, next := 0, 0
	for b := make([]byte, echoMessage); ; {
		if _, err := io.ReadFull(c.conn, b); err != nil {
			return
		}
		c.mu.Lock()
		list := c.watchers
		c.mu.Unlock()
		if binary.BigEndian.Uint64(b) == 0 {
			list[begun](nil)
			begun++
			continue
		}
		list[next%len(list)](b)
		next++
	}
}

// Session implements loadgen.Conn.
func (c *fanOutConn) Session(context.Context) (loadgen.Session, error) { return fanOutSession{c}, nil }

// Close implements loadgen.Conn.
func (c *fanOutConn) Close() error {
	err := c.conn.Close()
	<-c.closed
	return err
}

// fanOutSession has nothing to keep.
type fanOutSession struct{ *fanOutConn }

func (fanOutSession) Close(context.Context) error                  { return nil }
func (fanOutSession) Create(context.Context, string, []byte) error { return nil }
func (fanOutSession) Delete(context.Context, string) error         { return nil }

// Write implements loadgen.CanStore. The data begins with the number of the change, which is not 0.
func (s fanOutSession) Write(_ context.Context, _ string, data []byte) error {
	var b [echoMessage]byte
	copy(b[:], data)
	_, err := s.conn.Write(b[:])
	return err
}

// Watch implements loadgen.CanWatch.
func (s fanOutSession) Watch(ctx context.Context, _ string, notify func([]byte)) error {
	s.mu.Lock()
	s.watchers = append(s.watchers, notify)
	_, err := s.conn.Write(make([]byte, echoMessage))
	s.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-s.closed:
		return errors.New("the connection is closed")
	case <-ctx.Done():
		return ctx.Err()
	}
}
