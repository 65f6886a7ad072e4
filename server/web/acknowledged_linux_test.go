package web

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestAcknowledged: a handler learns that its client's kernel has what it was sent, that the kernel
// breaks the connection otherwise, and how the connection ended.
func TestAcknowledged(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan bool, 1)
	srv := Server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		SetUserTimeout(ctx, 15*time.Second)
		control(ctx, func(fd int) {
			if ms, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT); err != nil || ms != 15_000 {
				t.Errorf("the user timeout is %d ms, %v", ms, err)
			}
		})
		_, _ = io.WriteString(w, "told")
		_ = http.NewResponseController(w).Flush()
		for !Acknowledged(ctx) && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		<-ctx.Done()
		ended <- Lost(ctx)
	}), Timeouts{}, 16<<10, slog.New(slog.DiscardHandler))
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(LimitListener(l, 8, "full")) }()
	defer func() { _ = srv.Close(); <-served }()
	for _, reset := range []bool{false, true} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if reset {
			_ = conn.(*net.TCPConn).SetLinger(0)
		}
		_ = conn.Close()
		if <-ended {
			t.Errorf("a connection that its client closed (by a reset: %t) counts as lost", reset)
		}
	}
}
