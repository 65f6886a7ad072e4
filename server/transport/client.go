package transport

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Client handles the frames of one connection.
type Client interface {
	// Frame serves a frame. Its body is valid until the read cycle ends. The reading goroutine
	// calls it.
	Frame(p Cycle, h protocol.Header)
	// KeepsAlive reports whether something ends when the client is not heard for some seconds. The
	// pauses of such a connection are short. The reading goroutine calls it.
	KeepsAlive() bool
	// Room is called when there is room for what was held back, after Conn.AwaitRoom. Any goroutine
	// that has written may call it.
	Room()
	// Closed is called once, after the last frame. The connection was last heard at that time of
	// the clock.
	Closed(heard time.Duration)
}

// Cycle is what one reading goroutine has for the connections that it reads, one after another: the
// work that the frames of one read have in common.
type Cycle interface {
	// Begin begins the reading of what has come on a connection.
	Begin(now time.Duration)
	// End carries out what the frames since Begin have gathered. It returns how many bytes of
	// answers it has appended to the connection that may wait for Conn.WriteDeferred; 0: write them
	// now.
	End(c Client) (deferrable int)
	// Reset drops what a panic left half done.
	Reset()
}
