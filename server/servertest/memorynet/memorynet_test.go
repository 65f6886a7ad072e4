package memorynet

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// newConnPair is a connection from a:1 to b:1.
func newConnPair(t *testing.T) (n *Network, a, b net.Conn) {
	t.Helper()
	n = New()
	l, err := n.Endpoint("b:1").Listen("b:1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if a, err = n.Endpoint("a:1").Dial(t.Context(), "b:1"); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close(); _ = b.Close() })
	if a.RemoteAddr().String() != "b:1" || b.RemoteAddr().String() != "a:1" || a.LocalAddr().Network() != "memory" {
		t.Errorf("addresses are %v and %v", a.RemoteAddr(), b.RemoteAddr())
	}
	return n, a, b
}

func write(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if n, err := c.Write([]byte(text)); n != len(text) || err != nil {
		t.Fatalf("write: %d, %v", n, err)
	}
}

func expect(t *testing.T, c net.Conn, text string) {
	t.Helper()
	b := make([]byte, len(text))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != text {
		t.Fatalf("read %q, %v; want %q", b, err, text)
	}
}

func TestConnection(t *testing.T) {
	n, a, b := newConnPair(t)
	write(t, a, "to b")
	write(t, b, "to a")
	expect(t, b, "to b")
	expect(t, a, "to a")

	// What is closed is still read to its end.
	write(t, a, "last")
	_ = a.Close()
	expect(t, b, "last")
	if _, err := b.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("behind the end: %v", err)
	}
	if _, err := b.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("a write to an instance that is gone: %v", err)
	}
	if _, err := a.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a write on a closed connection: %v", err)
	}
	_ = b.Close()
	if n.Connections("a:1", "b:1") != 0 {
		t.Error("a closed connection is counted")
	}
}

func TestDeadlines(t *testing.T) {
	_, a, b := newConnPair(t)
	_ = a.SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read past its deadline: %v", err)
	}
	_ = a.SetReadDeadline(time.Time{})
	go func() { // once as much is written as can be
		await.True(t, "the buffer to be full", func() bool {
			c := a.(*conn)
			c.pair.mu.Lock()
			defer c.pair.mu.Unlock()
			return len(c.out().buf) == pipeBytes
		})
		_ = a.SetWriteDeadline(time.Now())
	}()
	n, err := a.Write(make([]byte, 2*pipeBytes))
	if n != pipeBytes || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a write of more than the buffer: %d, %v", n, err)
	}
	var ne net.Error
	if !errors.As(err, &ne) || !ne.Timeout() {
		t.Error("a deadline is no timeout")
	}
	if n, err := io.ReadFull(b, make([]byte, pipeBytes)); err != nil {
		t.Errorf("the reader got %d, %v", n, err)
	}
	go func() { _ = a.SetReadDeadline(time.Unix(1, 0)) }() // ends a read that waits
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read whose deadline is moved to the past: %v", err)
	}
}

func TestCuts(t *testing.T) {
	n, a, b := newConnPair(t)
	n.Cut("a:1", "b:1")
	write(t, a, "held ")
	write(t, b, "free")
	expect(t, a, "free")
	_ = b.SetReadDeadline(time.Now())
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a cut lets through: %v", err)
	}
	_ = b.SetReadDeadline(time.Time{})
	write(t, a, "back")
	_ = a.Close()
	n.Heal("a:1", "b:1")
	expect(t, b, "held back")
	if _, err := b.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the end of what was held back: %v", err)
	}

	for _, cut := range [][2]string{{"a:1", "b:1"}, {"b:1", "a:1"}} {
		n.Cut(cut[0], cut[1])
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if _, err := n.Endpoint("a:1").Dial(ctx, "b:1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a dial through a cut: %v", err)
		}
		cancel()
		done := make(chan error, 1)
		go func() {
			c, err := n.Endpoint("a:1").Dial(t.Context(), "b:1")
			if err == nil {
				_ = c.Close()
			}
			done <- err
		}()
		n.HealBoth("a:1", "b:1")
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if _, err := n.Endpoint("a:1").Dial(t.Context(), "c:1"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a dial to nobody: %v", err)
	}
}

func TestReset(t *testing.T) {
	n, a, b := newConnPair(t)
	write(t, a, "lost")
	n.Cut("a:1", "b:1")
	n.Reset("b:1", "a:1")
	for _, c := range []net.Conn{a, b} {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a read after a reset: %v", err)
		}
		if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a write after a reset: %v", err)
		}
	}
}
