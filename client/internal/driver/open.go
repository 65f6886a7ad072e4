package driver

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/signalbox-dev/signalbox/client/core"
	"github.com/signalbox-dev/signalbox/client/internal/wire"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Config says how to reach a cluster.
type Config struct {
	Endpoints []string
	Name      string // of the client
	Token     []byte
	Dial      func(ctx context.Context, address string) (net.Conn, error) // nil: TCP
	Notify    func(core.Event)                                            // of sessions and leases; nil: nobody
}

// SessionConfig is what a session is started with.
type SessionConfig struct {
	Path        string // of the coordination node
	Timeout     time.Duration
	Description string
}

// ErrClosed: the driver was closed.
var ErrClosed = errors.New("client is closed")

// Open makes the first connection, on the goroutine of the caller, and starts a session behind its
// hello.
func Open(ctx context.Context, cfg Config, session SessionConfig) (*Driver, *core.Session, error) {
	if cfg.Dial == nil {
		d := net.Dialer{KeepAlive: -1} // pings find a dead connection
		cfg.Dial = func(ctx context.Context, address string) (net.Conn, error) { return d.DialContext(ctx, "tcp", address) }
	}
	d := &Driver{cfg: cfg, engine: core.New(cfg.Endpoints, rand.Uint64()), links: make(map[*link]struct{})}
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.timer = time.AfterFunc(time.Hour, d.tick)
	d.timer.Stop()
	s := &core.Session{
		Path: session.Path, Timeout: session.Timeout, Description: session.Description, Nonce: randomNonce(),
	}
	_, _ = crand.Read(s.Key[:]) // it never fails: the process dies first
	started := newWaiter()
	x := &core.Start{Request: core.Request{Waiter: started}}
	_, _ = crand.Read(x.Create[:])
	_, _ = crand.Read(x.Again[:])

	now := d.lock()
	d.engine.Clocks(now, wall())
	d.engine.Open(now)
	d.engine.StartSession(now, s, x)
	d.engine.Take(&d.ready)
	c := d.ready.Dial[0]
	behind := c.TakeOut(nil)
	d.ready.Reset()
	d.mu.Unlock()

	if err := d.connect(ctx, c, behind); err != nil {
		d.Close()
		return nil, nil, err
	}
	if err := d.wait(ctx, &x.Request, started); err != nil {
		d.Close()
		return nil, nil, err
	}
	return d, s, nil
}

// dialTimeout is for one address: connecting and the hello.
const dialTimeout = 5 * time.Second

// connect makes a connection to the first address that answers.
func (d *Driver) connect(ctx context.Context, c *core.Conn, behind []byte) error {
	failed := errors.New("no address is known")
	for i, address := range c.Addresses {
		l, hello, err := d.connectTo(ctx, c, address, behind)
		if err != nil {
			if i == 0 {
				failed = nil
			}
			failed = errors.Join(failed, fmt.Errorf("%s: %w", address, err))
			continue
		}
		now := d.lock()
		closed := d.closed
		if !closed {
			d.links[l] = struct{}{}
			d.engine.Connected(now, c, address, hello)
		}
		d.unlock(now)
		if closed {
			l.wire.Close()
			return ErrClosed
		}
		if err := l.wire.First(l.received); err != nil {
			l.over(err)
			return err
		}
		d.goroutines.Go(l.read)
		return nil
	}
	now := d.lock()
	d.engine.Lost(now, c, failed)
	d.unlock(now)
	return failed
}

// connectTo makes a connection to one address.
func (d *Driver) connectTo(ctx context.Context, c *core.Conn, address string, behind []byte) (*link, *protocol.HelloReply, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	nc, err := d.cfg.Dial(ctx, address)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	w, hello, _, err := wire.Handshake(nc, &protocol.Hello{
		Magic: protocol.Magic, Version: protocol.Version, Client: d.cfg.Name, Token: d.cfg.Token,
	}, behind)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = nc.Close()
		return nil, nil, err
	}
	return newLink(d, c, w, nc), &hello, nil
}

// Close ends the connections. Sessions are left to their timeouts.
func (d *Driver) Close() {
	d.mu.Lock()
	d.closed = true
	d.stop()
	d.timer.Stop()
	var links []*link
	for l := range d.links {
		links = append(links, l)
	}
	d.mu.Unlock()
	for _, l := range links {
		l.wire.Close()
	}
	d.goroutines.Wait()
}

// randomNonce tells this holder of a session from others that have its key.
func randomNonce() uint64 {
	var b [8]byte
	_, _ = crand.Read(b[:])
	return max(1, binary.BigEndian.Uint64(b[:]))
}
