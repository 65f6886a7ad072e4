package client

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// clientMemory is what a client may take with its one connection, its map of 4,096 buckets and its
// session, the server's end of this test included. A process may have thousands of clients.
const clientMemory = 16 << 10 // bytes

// TestClientMemory opens clients that work, and looks at what they have allocated.
func TestClientMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	const clients = 50
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range clients {
		l, err := instant(t).Acquire(t.Context(), "a name")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / clients; each > clientMemory {
		t.Errorf("a client allocates %d bytes before it works; the bound is %d", each, clientMemory)
	}
}

// tcpPair is a connection over TCP, and the server's end.
func tcpPair(t *testing.T) (net.Conn, *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return nc, server.(*net.TCPConn)
}

// burstConn gives as much as is read while the burst lasts, then nothing.
type burstConn struct {
	net.Conn
	frame  []byte
	reads  int
	offset int
	asked  []int // bytes for which there was room, by read
	over   chan struct{}
}

func (c *burstConn) Read(p []byte) (int, error) {
	c.asked = append(c.asked, len(p))
	if len(c.asked) > c.reads {
		close(c.over)
		return 0, net.ErrClosed
	}
	for i := range p {
		p[i] = c.frame[c.offset]
		c.offset = (c.offset + 1) % len(c.frame)
	}
	return len(p), nil
}

func (c *burstConn) Close() error         { return nil }
func (c *burstConn) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// TestReadBufferGrows: the buffer begins small, doubles while reads fill it, and stops at its
// bound.
func TestReadBufferGrows(t *testing.T) {
	c := newClient(Config{Endpoints: []string{"x"}, clock: systemClock{}, Logger: discard()})
	t.Cleanup(c.CloseWithoutRelease)
	nc := &burstConn{frame: protocol.AppendFrame(nil, protocol.KindPong, 1, 1, nil), reads: 11, over: make(chan struct{})}
	cn := newConn(c, nc, protocol.HelloReply{Instance: 1, Window: 1}, nil, c.clock)
	cn.serve()
	<-nc.over
	<-cn.done
	// Part of a frame is kept from read to read, so that the room is a little smaller than the
	// buffer.
	rounded := make([]int, len(nc.asked))
	for i, room := range nc.asked {
		rounded[i] = (room + len(nc.frame)) / minReadBuffer
	}
	if want := []int{1, 2, 4, 8, 16, 32, 64, 128, 128, 128, 128, 128}; !slices.Equal(rounded, want) {
		t.Errorf("room of each read in units of the first: %d; want %d", rounded, want)
	}
}

// TestKeepAliveWritesItself: the ping of a connection that nobody else writes to needs no goroutine
// that stays.
func TestKeepAliveWritesItself(t *testing.T) {
	nc, server := tcpPair(t)
	defer server.Close()
	c := newClient(Config{Endpoints: []string{"x"}, clock: systemClock{}, Logger: discard()})
	t.Cleanup(c.CloseWithoutRelease)
	cn := newConn(c, nc, protocol.HelloReply{Instance: 1, Window: 1}, nil, c.clock)
	cn.serve()
	defer cn.end(net.ErrClosed)
	cn.keepAlive()
	cn.mu.Lock()
	want := protocol.AppendFrame(nil, protocol.KindPing, cn.lastPing, 0, nil)
	cn.mu.Unlock()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(server, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("the server got %x, %v; want a ping, %x", got, err, want)
	}
	if cn.writer.Load() {
		t.Error("a goroutine that writes was started for a ping")
	}
}
