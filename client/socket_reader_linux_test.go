package client

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// countingHandler counts events.
type countingHandler struct {
	events  int
	onEvent func(cn *conn)
	lost    chan struct{}
}

func (h *countingHandler) handleEvent(cn *conn, _ protocol.Header) error {
	h.events++
	if h.onEvent != nil {
		h.onEvent(cn)
	}
	return nil
}

func (h *countingHandler) connLost(*conn)     { close(h.lost) }
func (h *countingHandler) serverSilent(*conn) {}

// unservedConn is a connection over TCP that nothing was read from yet, its handler, and the
// server's end.
func unservedConn(t *testing.T) (*conn, *countingHandler, *net.TCPConn) {
	t.Helper()
	nc, server := tcpPair(t)
	h := &countingHandler{lost: make(chan struct{})}
	cn := newConn(h, nc, protocol.HelloReply{Instance: 1, Window: 10}, nil, systemClock{})
	t.Cleanup(func() {
		_ = server.Close()
		<-h.lost
	})
	return cn, h, server
}

// pollAll has the runtime collect what its poller reports, so that no event of what came before is
// still to come: it does so whenever it has stopped the world.
func pollAll() { runtime.GC() }

// newerEvent is of a kind that this client does not know.
const newerEvent = protocol.KindReply - 1

// TestEndWithLastBytes: a server sends much, and closes, before the client reads.
func TestEndWithLastBytes(t *testing.T) {
	const events = 3000
	cn, h, server := unservedConn(t)
	var sent []byte
	for range events {
		sent = protocol.AppendFrame(sent, newerEvent, 1, 1, nil)
	}
	if _, err := server.Write(sent); err != nil {
		t.Fatal(err)
	}
	_ = server.Close()
	pollAll()
	cn.serve()
	<-h.lost
	if h.events != events || !errors.Is(cn.err, io.EOF) {
		t.Errorf("%d events, then %v; want %d, then the end", h.events, cn.err, events)
	}
}

// resetBehindEvent has a server send an event, and then a reset.
func resetBehindEvent(t *testing.T, server *net.TCPConn) {
	t.Helper()
	if _, err := server.Write(protocol.AppendFrame(nil, newerEvent, 1, 1, nil)); err != nil {
		t.Fatal(err)
	}
	_ = server.SetLinger(0)
	_ = server.Close()
	pollAll()
}

// TestResetWithLastBytes: a server that is killed with a request unread sends a reset, behind what
// it had written. Who waits for a call, or has read a goodbye, notices, though nothing is written
// any more, and no ping either.
func TestResetWithLastBytes(t *testing.T) {
	cn, h, server := unservedConn(t)
	cl, _, err := cn.startCall(t.Context(), nil, protocol.KindDescribe, 0, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	cn.pingTimer.Stop()
	resetBehindEvent(t, server)
	cn.serve()
	<-cl.done
	<-h.lost
	if !errors.Is(cl.err, errConnLost) || h.events != 1 {
		t.Errorf("the call ended with %v after %d events; want the loss of the connection, after 1", cl.err, h.events)
	}

	cn, h, server = unservedConn(t)
	cn.pingTimer.Stop()
	h.onEvent = func(cn *conn) {
		cn.mu.Lock()
		cn.goodbye = io.ErrUnexpectedEOF
		cn.mu.Unlock()
	}
	resetBehindEvent(t, server)
	cn.serve()
	<-h.lost
	if !errors.Is(cn.err, io.ErrUnexpectedEOF) {
		t.Errorf("the connection ended with %v; want the goodbye", cn.err)
	}
}

// TestEndStopsReader: what comes behind the event that ended a connection is nobody's.
func TestEndStopsReader(t *testing.T) {
	cn, h, server := unservedConn(t)
	h.onEvent = func(cn *conn) { cn.end(net.ErrClosed) }
	events := bytes.Repeat(protocol.AppendFrame(nil, newerEvent, 1, 1, nil), 3*minReadBuffer)
	if _, err := server.Write(events); err != nil {
		t.Fatal(err)
	}
	cn.serve()
	<-h.lost
	if h.events > minReadBuffer {
		t.Errorf("%d events were handled; want those of the first read only", h.events)
	}
}

// TestEndIsSeenAtOnce: the server sees the end when end returns, though the reader, which is to
// close the socket, is still busy.
func TestEndIsSeenAtOnce(t *testing.T) {
	cn, h, server := unservedConn(t)
	h.onEvent = func(cn *conn) {
		cn.end(net.ErrClosed)
		_ = server.SetReadDeadline(time.Now().Add(10 * time.Second))
		if n, err := server.Read(make([]byte, 1)); n > 0 || err != io.EOF {
			t.Errorf("the server read %d bytes and %v; want the end", n, err)
		}
	}
	if _, err := server.Write(protocol.AppendFrame(nil, newerEvent, 1, 1, nil)); err != nil {
		t.Fatal(err)
	}
	cn.serve()
	<-h.lost
	if h.events != 1 {
		t.Errorf("%d events were handled; want 1", h.events)
	}
}

// TestDelayedAck: the kernel does not acknowledge an event when it is read, though it had begun to
// do so, as it does when no request follows the event before.
func TestDelayedAck(t *testing.T) {
	if !reportsEnds() {
		t.Skip("this system reads in another way")
	}
	cn, h, server := unservedConn(t)
	raw, err := cn.nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	atOnce := make(chan int)
	h.onEvent = func(*conn) {
		var value int
		ctl := raw.Control(func(fd uintptr) {
			if value, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_QUICKACK); err == nil {
				err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 1)
			}
		})
		if ctl != nil || err != nil {
			t.Error(ctl, err)
		}
		atOnce <- value
	}
	cn.serve()
	for range 3 {
		if _, err := server.Write(protocol.AppendFrame(nil, newerEvent, 1, 1, nil)); err != nil {
			t.Fatal(err)
		}
		if got := <-atOnce; got != 0 {
			t.Errorf("TCP_QUICKACK = %d when an event was read; want 0", got)
		}
	}
}

// TestAtLeast compares releases of kernels.
func TestAtLeast(t *testing.T) {
	for release, want := range map[string]bool{
		"5.1.0": true, "5.10.0-23-amd64": true, "6.0": true, "10.2.3": true,
		"5.0.21": false, "4.18.0-553.el8": false, "4.4.0": false, "5": false, "": false, "x": false,
	} {
		if got := atLeast(release, 5, 1); got != want {
			t.Errorf("atLeast(%q, 5, 1) = %v; want %v", release, got, want)
		}
	}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Skip(err)
	}
	if got, want := reportsEnds(), atLeast(string(release), 5, 1); got != want {
		t.Errorf("reportsEnds() = %v on Linux %s; want %v", got, release, want)
	}
}

// TestEndClosesSocket: the server sees the end of a connection that the client gives up.
func TestEndClosesSocket(t *testing.T) {
	event := protocol.AppendFrame(nil, newerEvent, 1, 1, nil)
	end := func(cn *conn) { cn.end(net.ErrClosed) }
	for _, c := range []struct {
		name    string
		sent    []byte
		onEvent func(cn *conn)
		then    func(cn *conn)
	}{
		{name: "before it reads", then: end},
		{name: "while it reads", sent: event, then: end},
		{name: "because of what it reads", sent: []byte{0xff, 0xff, 0xff, 0xff, 0xff}},
		{name: "by the reader", sent: event, onEvent: end},
	} {
		t.Run(c.name, func(t *testing.T) {
			cn, h, server := unservedConn(t)
			seen := make(chan struct{})
			if h.onEvent = c.onEvent; h.onEvent == nil {
				h.onEvent = func(*conn) { close(seen) }
			}
			if c.sent == nil {
				c.then(cn)
			}
			cn.serve()
			if c.sent != nil {
				if _, err := server.Write(c.sent); err != nil {
					t.Fatal(err)
				}
				if c.then != nil {
					<-seen
					c.then(cn)
				}
			}
			if n, err := server.Read(make([]byte, 1)); n > 0 || err == nil {
				t.Errorf("the server read %d bytes and %v; want the end", n, err)
			}
			<-h.lost
		})
	}
}
