package peer

import (
	"bufio"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

const (
	maxWrite   = 256 << 10 // a larger write is split, and each part has its own deadline: slow is not dead
	readBuffer = 64 << 10
)

var (
	errClosed    = errors.New("connection is closed")
	errKeepAlive = errors.New("keep-alives were missed")
)

// conn is an authenticated connection. One goroutine reads frames; any may write them.
type conn struct {
	m       *Transport
	nc      net.Conn
	peer    string // advertised address of the other end
	purpose purpose
	dialer  bool   // this end dialled
	cluster string // as known here at the handshake
	reader  frameReader

	metEarly bool // this end dialled, and the other end did not know its cluster at the handshake

	closeOnce sync.Once
	done      chan struct{}

	created   time.Time
	lastWrite atomic.Int64 // since created, ns: the end of the last split write, 0 for none; replies may be late by it
	wmu       sync.Mutex   // one write at a time
}

func newConn(m *Transport, nc net.Conn, peer string, p purpose, dialer bool, cluster string) *conn {
	c := &conn{m: m, nc: nc, peer: peer, purpose: p, dialer: dialer, cluster: cluster, created: time.Now(),
		done: make(chan struct{})}
	c.reader = frameReader{r: bufio.NewReaderSize(keepAliveReader{c}, readBuffer),
		limits: limitsOf(p, !dialer, m.cfg.Limits.Payload)}
	return c
}

// keepAliveReader reads with a deadline that moves with each read.
type keepAliveReader struct{ c *conn }

func (k keepAliveReader) Read(b []byte) (int, error) {
	silence := k.c.m.cfg.Limits.deadAfter()
	if k.c.purpose == purposeSnapshot {
		silence = maxChunkWait // no keep-alives: each chunk is answered, once it is on disk
	}
	for {
		_ = k.c.nc.SetReadDeadline(time.Now().Add(silence))
		n, err := k.c.nc.Read(b)
		k.c.m.stats.BytesReceived.Add(uint64(n))
		if n > 0 || err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		// During a large write no keep-alive can be sent; writes have their own deadlines.
		if !k.c.wmu.TryLock() {
			continue
		}
		k.c.wmu.Unlock()
		if last := k.c.lastWrite.Load(); last > 0 && time.Since(k.c.created)-time.Duration(last) < silence {
			continue
		}
		k.c.m.stats.Silent.Add(1)
		return n, errKeepAlive
	}
}

// close closes the connection; reads and writes fail.
func (c *conn) close() {
	c.closeOnce.Do(func() {
		close(c.done)
		_ = c.nc.Close()
	})
}

func (c *conn) closed() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// write writes whole frames. If the peer does not take a part within the write timeout, write fails
// and closes the connection.
func (c *conn) write(b []byte) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	big := len(b) > maxWrite
	for len(b) > 0 {
		piece := b[:min(len(b), maxWrite)]
		_ = c.nc.SetWriteDeadline(time.Now().Add(c.m.cfg.Limits.WriteTimeout))
		n, err := c.nc.Write(piece)
		c.m.stats.BytesSent.Add(uint64(n))
		if err != nil {
			c.close()
			return err
		}
		b = b[n:]
	}
	if big {
		c.lastWrite.Store(int64(time.Since(c.created)))
	}
	return nil
}

var (
	pingFrame = appendFrame(nil, framePing, 0, nil, nil)
	pongFrame = appendFrame(nil, framePong, 0, nil, nil)
)

// stale: a cluster became known after the handshake, here or perhaps at the other end, so a new
// handshake must check it. Of a connection for calls the dialer sees to that, while no reply is
// pending: the other end cannot know which calls are on their way. Connections for one-way messages
// are closed by both ends.
func (c *conn) stale() bool {
	cluster := c.m.identity().cluster
	return c.cluster != cluster || c.metEarly && cluster != ""
}

// keepAlive sends keep-alives from the dialer until the connection closes. On a connection for
// calls writeLoop does.
func (c *conn) keepAlive() {
	t := time.NewTimer(beat.Next(c.m.cfg.Limits.KeepAlive))
	defer t.Stop()
	for {
		select {
		case <-c.done:
			return
		case <-t.C:
			if c.stale() {
				c.close()
				return
			}
			if c.write(pingFrame) != nil {
				return
			}
			t.Reset(beat.Next(c.m.cfg.Limits.KeepAlive))
		}
	}
}

// next reads the next frame that is not a keep-alive.
func (c *conn) next(buf []byte) (kind, arg byte, payload []byte, err error) {
	for {
		kind, arg, payload, err = c.reader.next(buf)
		switch {
		case err != nil:
			if errors.Is(err, errFrame) {
				c.m.closeMalformed(c, err)
			}
			return 0, 0, nil, err
		case kind == framePing:
			if c.dialer || c.purpose != purposeCalls && c.stale() {
				return 0, 0, nil, errClosed
			}
			if err := c.write(pongFrame); err != nil {
				return 0, 0, nil, err
			}
		case kind == framePong:
		default:
			return kind, arg, payload, nil
		}
	}
}

// closeDialed closes a connection made by dial.
func (c *conn) closeDialed() {
	c.close()
	if c.m.untrack(c) {
		c.m.stats.Outbound.Add(-1)
	}
}
