package peer

import (
	"context"
	"net"
)

// Network makes connections. They carry bytes in order, take deadlines, and may be closed by any
// goroutine.
type Network interface {
	Listen(address string) (net.Listener, error)
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// TCP is the machine's network.
func TCP() Network { return tcp{} }

type tcp struct{}

func (tcp) Listen(address string) (net.Listener, error) {
	var c net.ListenConfig
	return c.Listen(context.Background(), "tcp", address)
}

func (tcp) Dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}
