//go:build !linux

package bench

import (
	"context"
	"math/rand/v2"
	"net"
	"time"
)

// framePoller reads each connection on the goroutine that follows it, and sends pings on it.
type framePoller struct{ ping []byte }

func newFramePoller(ping []byte) (*framePoller, error) { return &framePoller{ping}, nil }

func (p *framePoller) follow(ctx context.Context, conn net.Conn, came []byte, take func(frame []byte) error) error {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	p.pingLater(conn, rand.N(rawPing))
	var free [][]byte
	f := frames{take: take, free: &free}
	err := f.feed(came)
	for buf := make([]byte, 64<<10); err == nil; {
		n := 0
		if n, err = conn.Read(buf); n > 0 {
			err = f.feed(buf[:n])
		}
	}
	return err
}

func (p *framePoller) pingLater(conn net.Conn, d time.Duration) {
	time.AfterFunc(d, func() {
		if _, err := conn.Write(p.ping); err == nil {
			p.pingLater(conn, rawPing)
		}
	})
}
