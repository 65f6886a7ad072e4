package wire

import (
	"fmt"
	"net"

	"github.com/signalbox-dev/signalbox/protocol"
)

const (
	minReadBuffer = 512       // bytes; grows as soon as a read fills it
	maxReadBuffer = 64 << 10  // a read takes no more, unless a frame is longer
	maxKeptBuffer = 256 << 10 // a buffer that grew beyond this is given back once it is empty
)

// Conn is a connection whose hello was answered. One goroutine reads at a time, and one writes.
type Conn struct {
	nc     net.Conn
	buf    []byte // what was read and is no whole frame yet
	filled bool   // by the last read: there may be more
	frames []protocol.Header
}

// Write writes whole frames. The memory is the caller's again when it returns.
func (c *Conn) Write(frames []byte) error {
	_, err := c.nc.Write(frames)
	return err
}

// Close ends reads and writes.
func (c *Conn) Close() { _ = c.nc.Close() }

// Address is the other end, for people.
func (c *Conn) Address() string { return c.nc.RemoteAddr().String() }

// Read hands over what each read brought, as whole frames, until the connection ends, and returns
// why. What came behind the answer to the hello is first. The frames are valid during the call of
// received.
func (c *Conn) Read(received func(frames []protocol.Header)) error {
	for {
		if err := c.split(received); err != nil {
			return err
		}
		n, err := c.nc.Read(c.room())
		if n == 0 && err != nil {
			return err
		}
		c.buf = c.buf[:len(c.buf)+n]
		c.filled = len(c.buf) == cap(c.buf)
	}
}

// First hands over what came behind the answer to the hello, before Read is called.
func (c *Conn) First(received func(frames []protocol.Header)) error { return c.split(received) }

// room is where the next bytes belong.
func (c *Conn) room() []byte {
	if size := cap(c.buf); len(c.buf) == size || c.filled && size < maxReadBuffer {
		c.buf = append(make([]byte, 0, max(2*size, minReadBuffer)), c.buf...)
		c.filled = false
	}
	return c.buf[len(c.buf):cap(c.buf)]
}

// split hands over the whole frames, and moves the rest to the beginning.
func (c *Conn) split(received func([]protocol.Header)) error {
	rest := c.buf
	var bad error
	for bad == nil {
		frame, n, err := protocol.SplitFrame(rest, protocol.MaxFrameLen)
		if err != nil {
			bad = fmt.Errorf("server sent what is not a frame: %w", err)
			break
		}
		if n == 0 {
			break
		}
		rest = rest[n:]
		h, err := protocol.ParseFrame(frame)
		if err != nil {
			bad = fmt.Errorf("server sent a bad frame: %w", err)
			break
		}
		c.frames = append(c.frames, h)
	}
	if len(c.frames) > 0 {
		received(c.frames)
		clear(c.frames)
		c.frames = c.frames[:0]
	}
	if len(rest) == 0 && cap(c.buf) > maxKeptBuffer {
		c.buf = make([]byte, 0, maxReadBuffer)
	} else {
		c.buf = append(c.buf[:0], rest...)
	}
	return bad
}
