package bench

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// framePoller reads the connections of thousands of watchers on one goroutine, and sends pings on
// them. With a goroutine each, a frame takes its reader two reads and two switches more. With
// connections that Go's runtime polls as well, each frame wakes a second thread. Readers share the
// machine with what they measure.
type framePoller struct {
	epoll int
	ping  []byte

	mu   sync.Mutex // held while frames are taken in
	list map[int32]*polledConn
	buf  []byte
	free [][]byte
}

type polledConn struct {
	frames
	fd    int
	ended chan error
}

func newFramePoller(ping []byte) (*framePoller, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	p := &framePoller{epoll: epoll, ping: ping, list: make(map[int32]*polledConn), buf: make([]byte, 256<<10)}
	go p.run() // as long as the process
	return p, nil
}

// follow reads frames, of which some bytes have come, until ctx ends or the connection does. It
// closes the connection.
func (p *framePoller) follow(ctx context.Context, conn net.Conn, came []byte, take func(frame []byte) error) error {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	c := &polledConn{frames: frames{take: take, free: &p.free}, ended: make(chan error, 1)}
	if cerr := raw.Control(func(fd uintptr) {
		c.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	}); cerr != nil || err != nil {
		return errors.Join(cerr, err)
	}
	_ = conn.Close() // for the runtime, which then polls it no more
	defer unix.Close(c.fd)
	p.mu.Lock()
	if err = c.feed(came); err == nil {
		err = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, c.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.fd)})
	}
	if err == nil {
		p.list[int32(c.fd)] = c
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	p.pingLater(c, rand.N(rawPing))
	select {
	case err := <-c.ended:
		return err
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		p.remove(c)
		return ctx.Err()
	}
}

// pingLater keeps a connection that sends nothing else.
func (p *framePoller) pingLater(c *polledConn, d time.Duration) {
	time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.list[int32(c.fd)] == c {
			_, _ = unix.Write(c.fd, p.ping)
			p.pingLater(c, rawPing)
		}
	})
}

// remove: the descriptor may be closed now, and its number be another one's.
func (p *framePoller) remove(c *polledConn) {
	if p.list[int32(c.fd)] == c {
		delete(p.list, int32(c.fd))
		_ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, c.fd, nil)
	}
}

func (p *framePoller) run() {
	events := make([]unix.EpollEvent, 256)
	for {
		n, err := unix.EpollWait(p.epoll, events, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			panic(err) // the program is wrong
		}
		p.mu.Lock()
		for i := range max(n, 0) {
			c := p.list[events[i].Fd]
			if c == nil {
				continue
			}
			if err := p.read(c); err != nil {
				p.remove(c)
				c.ended <- err
			}
		}
		p.mu.Unlock()
	}
}

// read reads the rest of a frame into its place, and what follows behind it.
func (p *framePoller) read(c *polledConn) error {
	rest := c.missing()
	var n int
	var err error
	if len(rest) == 0 {
		n, err = unix.Read(c.fd, p.buf)
	} else {
		n, err = unix.Readv(c.fd, [][]byte{rest, p.buf})
	}
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return err
	case n == 0:
		return io.EOF
	}
	if len(rest) > 0 {
		filled := min(n, len(rest))
		if err := c.filled(filled); err != nil {
			return err
		}
		n -= filled
	}
	return c.feed(p.buf[:n])
}
