//go:build !linux

package bench

import (
	"context"
	"net"
)

// framePoller reads each connection on the goroutine that follows it.
type framePoller struct{}

func newFramePoller() (*framePoller, error) { return &framePoller{}, nil }

func (*framePoller) follow(ctx context.Context, conn net.Conn, came []byte, take func(frame []byte) error) error {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	f := frames{take: take}
	err := f.feed(came)
	for buf := make([]byte, 64<<10); err == nil; {
		n := 0
		if n, err = conn.Read(buf); n > 0 {
			err = f.feed(buf[:n])
		}
	}
	return err
}
