package wire

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/signalbox-dev/signalbox/protocol"
)

// ErrNotProtocol means that the answer to the hello is not one of this protocol.
var ErrNotProtocol = errors.New("the server did not answer the hello; is this another service's port?")

// helloID is the id of the hello. What goes out behind it has the next ones.
const helloID = 1

// helloRoom is room for what a client sends first, tokens and long names apart.
const helloRoom = 256

// helloBuffers are of the size of the largest answer to a hello.
var helloBuffers = sync.Pool{New: func() any { return new([protocol.MaxHelloLen + 4]byte) }}

// Handshake sends the hello with the frames behind it, in one write, and reads the answer. A
// refusal is a *protocol.Error. received is what came instead of an answer, if there is an error.
// The caller bounds the time by the connection's deadline, and closes it if there is an error.
func Handshake(
	nc net.Conn, hello *protocol.Hello, behind []byte,
) (c *Conn, reply protocol.HelloReply, received []byte, err error) {
	out := protocol.AppendFrame(make([]byte, 0, helloRoom+len(hello.Token)+len(behind)), protocol.KindHello, helloID, 0,
		hello)
	if _, err := nc.Write(append(out, behind...)); err != nil {
		return nil, reply, nil, err
	}
	room := helloBuffers.Get().(*[protocol.MaxHelloLen + 4]byte)
	buf := room[:0]
	for {
		frame, n, err := protocol.SplitFrame(buf, protocol.MaxHelloLen)
		if err != nil {
			return nil, reply, buf, fmt.Errorf("%w: %w", ErrNotProtocol, err)
		}
		if n > 0 {
			if err := readReply(frame, &reply); err != nil {
				return nil, reply, buf, err
			}
			c = &Conn{nc: nc, buf: append(make([]byte, 0, max(len(buf)-n, minReadBuffer)), buf[n:]...)}
			helloBuffers.Put(room) // what is kept for the life of a connection is small
			return c, reply, nil, nil
		}
		read, err := nc.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+read]
		if err != nil && read == 0 {
			return nil, reply, buf, err
		}
	}
}

// readReply reads the answer to the hello.
func readReply(frame []byte, reply *protocol.HelloReply) error {
	h, err := protocol.ParseFrame(frame)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrNotProtocol, err)
	case h.Kind == protocol.KindGoodbye:
		var g protocol.Goodbye
		_ = protocol.DecodeBody(&g, h.Body)
		return &protocol.Error{Status: g.Status, Message: g.Message}
	case h.Kind != protocol.KindHello|protocol.KindReply:
		return fmt.Errorf("server answered the hello with a message of kind %d", h.Kind)
	case h.Arg != uint64(protocol.StatusOK):
		var f protocol.Failure
		_ = protocol.DecodeBody(&f, h.Body)
		return &protocol.Error{Status: protocol.Status(min(h.Arg, 0xff)), Refusal: f.Refusal, Message: f.Message}
	}
	return protocol.DecodeBody(reply, h.Body)
}
