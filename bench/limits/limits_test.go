package limits

import (
	"context"
	"io"
	"net"
	"testing"
	"time"
)

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestMeasureRaft(t *testing.T) {
	r, err := MeasureRaft(t.Context(), t.TempDir(), free(t), 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if r.Sequential <= 0 || r.P50 <= 0 || r.P99 < r.P50 || r.Batched <= 0 {
		t.Errorf("%+v", r)
	}
}

func TestServeEcho(t *testing.T) {
	addr := free(t)
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- ServeEcho(ctx, addr, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", addr)
	for err != nil && ctx.Err() == nil { // it is told that it boots before it accepts
		c, err = net.Dial("tcp", addr)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"there", "and back"} {
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, len(text))
		if _, err := io.ReadFull(c, b); err != nil || string(b) != text {
			t.Errorf("%q came back as %q, %v", text, b, err)
		}
	}
	c.Close()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
