package peer

import (
	"context"
	"net"
)

// Network makes connections. Its connections carry bytes in order, take deadlines, and may be closed from any goroutine.
type Network interface {
	Listen(address string) (net.Listener, error)
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// TCP is the network of the machine.
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
