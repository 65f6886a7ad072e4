// How are bare dragonboat and a bare gnet echo measured like any system?

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// echoMessage is the length of a message of the echo, in bytes, as in package limits, which programs
// that only compare do not need.
const echoMessage = 64

// RaftLimit is bare dragonboat as a System: the cost of the log alone. Binary is the program of
// bench/cmd.
type RaftLimit struct{ Binary string }

// Name says bare dragonboat.
func (l *RaftLimit) Name() string { return Dragonboat }

// Version asks the program which dragonboat it was built with.
func (l *RaftLimit) Version(ctx context.Context) (string, error) {
	v, err := limitVersion(ctx, l.Binary, "dragonboat")
	return v + "; one replica, 64 bytes a proposal, each synced", err
}

// Start has nothing to start.
func (l *RaftLimit) Start(context.Context, string) (*Server, error) {
	return nil, errors.New("bare dragonboat is no server")
}

// Measure has a process of its own propose.
func (l *RaftLimit) Measure(ctx context.Context, dir string, d time.Duration, note func(string, float64)) error {
	addr, err := FreeAddress()
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, l.Binary, "limit", "raft", "--dir", dir, "--listen", addr, "--for", d.String()).Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return err
	}
	var r struct {
		Sequential float64 `json:"sequential_per_second"`
		P50        float64 `json:"p50_ms"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return err
	}
	if r.Sequential == 0 || r.P50 == 0 {
		return errors.New("bare dragonboat answered nothing")
	}
	note("proposal-1", r.P50)
	note("proposal-1-rate", r.Sequential)
	return nil
}

func limitVersion(ctx context.Context, binary, module string) (string, error) {
	out, err := exec.CommandContext(ctx, binary, "limit", "version", module).Output()
	if err != nil {
		return "", fmt.Errorf("%s does not run: %w; build ./bench/cmd", binary, err)
	}
	return string(out), nil
}

// EchoLimit is a bare gnet echo as a System: the cost of the event loop and the system calls alone.
// Binary is the program of bench/cmd.
type EchoLimit struct{ Binary string }

// Name says bare gnet echo.
func (l *EchoLimit) Name() string { return Echo }

// Version asks the program which gnet it was built with.
func (l *EchoLimit) Version(ctx context.Context) (string, error) {
	v, err := limitVersion(ctx, l.Binary, "gnet")
	return v + "; 64 bytes there and back, an event loop for each core", err
}

// Start starts the echo.
func (l *EchoLimit) Start(ctx context.Context, dir string) (*Server, error) {
	binary, err := filepath.Abs(l.Binary)
	if err != nil {
		return nil, err
	}
	addr, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	ready := func(ctx context.Context) error { return Dial(ctx, addr) }
	p, err := StartProcess(ctx, dir, ready, binary, "limit", "echo", "--listen", addr)
	if err != nil {
		return nil, err
	}
	return NewServer(p, func(w Workload) (Plan, error) {
		if w != OwnConnections && w != IdleOwn {
			return Plan{}, ErrUnsupported
		}
		return Plan{Target: echoTarget{addr: addr, pings: w == IdleOwn}, Connections: loadgen.Each}, nil
	}), nil
}

// Dial reports whether somebody listens.
func Dial(ctx context.Context, addr string) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return c.Close()
}

// echoTarget reads by sending 64 bytes and waiting for them: one write and one read at each end,
// with nothing in between.
type echoTarget struct {
	addr  string
	pings bool // sessions live by messages, as often as ours send pings
}

func (t echoTarget) Name() string { return "echo at " + t.addr }

func (t echoTarget) Code(error) string { return "other" }

func (t echoTarget) Open(ctx context.Context) (loadgen.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", t.addr)
	if err != nil {
		return nil, err
	}
	return &echoConn{conn: c, pings: t.pings, closed: make(chan struct{})}, nil
}

type echoConn struct {
	conn   net.Conn
	buf    [echoMessage]byte
	pings  bool
	closed chan struct{}
	lost   atomic.Bool
}

func (c *echoConn) Session(context.Context) (loadgen.Session, error) {
	if c.pings {
		go c.ping()
	}
	return echoSession{c}, nil
}

func (c *echoConn) Close() error {
	close(c.closed)
	return c.conn.Close()
}

// A client of ours pings four times in a session's timeout of 10 s, at moments that the clients of
// a machine share.
const (
	pingPeriod = 2500 * time.Millisecond
	pingBeat   = pingPeriod / 50
)

// ping sends a message each period until the connection is closed.
func (c *echoConn) ping() {
	next := time.Now().Add(rand.N(pingPeriod)).Truncate(pingBeat)
	t := time.NewTimer(time.Until(next))
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-c.closed:
			return
		}
		if err := (echoSession{c}).Read(context.Background(), ""); err != nil {
			c.lost.Store(true)
			return
		}
		next = next.Add(pingPeriod)
		t.Reset(time.Until(next))
	}
}

// echoSession has nothing to keep: the names of the scenario are none to it.
type echoSession struct{ *echoConn }

func (s echoSession) Alive() bool                                { return !s.lost.Load() }
func (echoSession) Close(context.Context) error                  { return nil }
func (echoSession) Create(context.Context, string, []byte) error { return nil }
func (echoSession) Delete(context.Context, string) error         { return nil }
func (echoSession) Write(context.Context, string, []byte) error  { return nil }
func (s echoSession) Reader(bool) loadgen.Reader                 { return s }

func (s echoSession) Read(context.Context, string) error {
	if _, err := s.conn.Write(s.buf[:]); err != nil {
		return err
	}
	_, err := io.ReadFull(s.conn, s.buf[:])
	return err
}
