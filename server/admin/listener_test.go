package admin

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestBounded: at the limit everybody is served, one past it is told, and a place that is left is somebody else's.
func TestBounded(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const most = 3
	srv := Server(Handler(Config{}), slog.New(slog.DiscardHandler))
	done := make(chan struct{})
	l := Bounded(inner, most).(*bounded)
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
	defer func() {
		_ = srv.Close()
		<-done
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		return c
	}
	ask := func(c net.Conn) (int, string) {
		_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(b)
	}
	var all []net.Conn
	for range most {
		c := dial()
		defer c.Close()
		if code, _ := ask(c); code != http.StatusOK {
			t.Fatalf("at the limit: %d", code)
		}
		all = append(all, c)
	}
	over := dial()
	defer over.Close()
	r, err := http.ReadResponse(bufio.NewReader(over), nil) // it asks nothing: what is unread when the other end closes could take the answer away
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(b), "too many connections") {
		t.Fatalf("one past the limit: %d %q %v", r.StatusCode, b, err)
	}
	_ = all[0].Close()
	for end := time.Now().Add(time.Minute); l.open.Load() >= most; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a closed connection keeps its place")
		}
	}
	next := dial()
	defer next.Close()
	if code, _ := ask(next); code != http.StatusOK {
		t.Errorf("in a place that was left: %d", code)
	}
}
