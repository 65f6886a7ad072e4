package limits

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"slices"
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

// echoed sends messages, more at once than a batch has, in parts that are no
// messages, and expects each of them back.
func echoed(t *testing.T, c net.Conn) {
	t.Helper()
	const messages = 300
	var sent []byte
	for i := range messages {
		b := make([]byte, MessageSize)
		binary.LittleEndian.PutUint64(b, uint64(i))
		binary.LittleEndian.PutUint64(b[MessageSize-8:], uint64(i))
		sent = append(sent, b...)
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
	back := map[string]int{}
	for m := range slices.Chunk(got, MessageSize) {
		back[string(m)]++
	}
	for m := range slices.Chunk(sent, MessageSize) {
		if back[string(m)] != 1 {
			t.Fatalf("message %d came back %d times", binary.LittleEndian.Uint64(m), back[string(m)])
		}
	}
}

func TestLoggedEcho(t *testing.T) {
	for _, groups := range []int{1, 3} {
		dir, raft := t.TempDir(), port.ForTest(t)
		c, stop := serving(t, func(ctx context.Context, addr string) error {
			return LoggedEcho{Listen: addr, Raft: raft, Dir: dir, Groups: groups}.Serve(ctx)
		})
		echoed(t, c)
		halves(t, c)
		stop()
		if files, err := filepath.Glob(filepath.Join(dir, "log", "*")); err != nil || len(files) == 0 {
			t.Error("nothing is in the log", err)
		}
	}
}

// TestLoggedEchoLock: an acquire is answered when the lock is free, or comes to it, in order; what
// else a connection sends is answered meanwhile.
func TestLoggedEchoLock(t *testing.T) {
	dir, raft := t.TempDir(), port.ForTest(t)
	first, stop := serving(t, func(ctx context.Context, addr string) error {
		return LoggedEcho{Listen: addr, Raft: raft, Dir: dir}.Serve(ctx)
	})
	defer stop()
	callers := []net.Conn{first}
	for range 2 {
		c, err := net.Dial("tcp", first.RemoteAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		callers = append(callers, c)
	}
	message := func(caller, what byte) []byte {
		return append(make([]byte, LockByte), append([]byte{what}, bytes.Repeat([]byte{caller}, MessageSize-LockByte-1)...)...)
	}
	send := func(caller byte, all ...byte) {
		t.Helper()
		var b []byte
		for _, what := range all {
			b = append(b, message(caller, what)...)
		}
		if _, err := callers[caller].Write(b); err != nil {
			t.Fatal(err)
		}
	}
	answered := func(caller byte, all ...byte) {
		t.Helper()
		for _, what := range all {
			got := make([]byte, MessageSize)
			_ = callers[caller].SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := io.ReadFull(callers[caller], got); err != nil || !bytes.Equal(got, message(caller, what)) {
				t.Fatalf("caller %d is answered %v, %v; want %d", caller, got, err, what)
			}
		}
	}
	const other = 0
	for range 3 {
		send(0, other, Acquire, other)
		answered(0, other, Acquire, other)
		send(1, other, Acquire, other)
		answered(1, other, other)
		send(2, Acquire, other)
		answered(2, other)
		send(0, Release, Acquire, other)
		answered(0, Release, other)
		answered(1, Acquire)
		send(1, Release)
		answered(1, Release)
		answered(2, Acquire)
		send(2, Release)
		answered(2, Release)
		answered(0, Acquire)
		send(0, Release)
		answered(0, Release)
	}
}

// halves sends a message in two parts. An answer on another connection says that the first part was
// read alone, where one event loop has both.
func halves(t *testing.T, c net.Conn) {
	t.Helper()
	other, err := net.Dial("tcp", c.RemoteAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	sent, got := bytes.Repeat([]byte{3}, MessageSize), make([]byte, MessageSize)
	for _, part := range []struct {
		to     net.Conn
		data   []byte
		answer bool
	}{{c, sent[:MessageSize/2], false}, {other, sent, true}, {c, sent[MessageSize/2:], true}} {
		if _, err := part.to.Write(part.data); err != nil {
			t.Fatal(err)
		}
		if !part.answer {
			continue
		}
		if err := part.to.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(part.to, got); err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("%x came back, %v", got, err)
		}
	}
}

// TestLoggedEchoOfThree: the first of three members leads and answers.
func TestLoggedEchoOfThree(t *testing.T) {
	members := []string{port.ForTest(t), port.ForTest(t), port.ForTest(t)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for _, raft := range members[1:] {
		go func() { ended <- LoggedEcho{Raft: raft, Members: members, Dir: t.TempDir()}.Serve(ctx) }()
	}
	c, stop := serving(t, func(ctx context.Context, addr string) error {
		return LoggedEcho{Listen: addr, Raft: members[0], Members: members, Dir: t.TempDir()}.Serve(ctx)
	})
	echoed(t, c)
	stop()
	cancel()
	for range members[1:] {
		if err := <-ended; err != nil {
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
