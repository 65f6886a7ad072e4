package limits

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest/port"
)

func TestMeasureRaft(t *testing.T) {
	r, err := MeasureRaft(t.Context(), t.TempDir(), port.ForTest(t), 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if r.Sequential <= 0 || r.P50 <= 0 {
		t.Errorf("%+v", r)
	}
}

// serving starts a server, and a connection to it. stop ends both.
func serving(t *testing.T, serve func(ctx context.Context, addr string) error) (c net.Conn, stop func()) {
	t.Helper()
	addr := port.ForTest(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- serve(ctx, addr)
		cancel()
	}()
	c, err := net.Dial("tcp", addr)
	for err != nil && ctx.Err() == nil { // until it accepts
		c, err = net.Dial("tcp", addr)
	}
	if err != nil {
		t.Fatal(err, <-done)
	}
	return c, func() {
		c.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestServeEcho(t *testing.T) {
	c, stop := serving(t, func(ctx context.Context, addr string) error { return ServeEcho(ctx, addr) })
	defer stop()
	for _, text := range []string{"there", "and back"} {
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, len(text))
		if _, err := io.ReadFull(c, b); err != nil || string(b) != text {
			t.Errorf("%q came back as %q, %v", text, b, err)
		}
	}
}
