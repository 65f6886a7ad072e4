package limits

import (
	"bytes"
	"context"
	"io"
	"net"
	"path/filepath"
	"slices"
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

// serving starts a server, and a connection to it. stop ends both.
func serving(t *testing.T, serve func(ctx context.Context, addr string) error) (c net.Conn, stop func()) {
	t.Helper()
	addr := free(t)
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

// TestServeLoggedEcho sends more messages at once than a batch has, in parts that are no messages.
func TestServeLoggedEcho(t *testing.T) {
	dir, raft := t.TempDir(), free(t)
	c, stop := serving(t, func(ctx context.Context, addr string) error { return ServeLoggedEcho(ctx, addr, raft, dir) })
	defer stop()
	sent := make([]byte, 300*MessageSize)
	for i := range sent {
		sent[i] = byte(i / MessageSize)
	}
	go func() {
		for part := range slices.Chunk(sent, 7*MessageSize/2) {
			if _, err := c.Write(part); err != nil {
				return
			}
		}
	}()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, sent) {
		t.Error("the answers are not what was sent")
	}
	if files, err := filepath.Glob(filepath.Join(dir, "log", "*")); err != nil || len(files) == 0 {
		t.Error("nothing is in the log", err)
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
