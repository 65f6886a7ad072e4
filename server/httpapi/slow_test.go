package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// pipes is a listener of connections in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// closing is a connection that tells when its server closes it.
type closing struct {
	net.Conn
	closed func()
}

func (c closing) Close() error {
	c.closed()
	return c.Conn.Close()
}

// TestSlowCallers: a caller that does not read its answer is cut after 30 s, one that sends half of
// a header after 5 s, and a connection without a request after two minutes.
func TestSlowCallers(t *testing.T) {
	t.Parallel()
	const request = "GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for _, c := range []struct {
		what, sends string
		reads       bool
		after       time.Duration
	}{
		{"reads nothing", request, false, 30 * time.Second},
		{"sends half of a header", request[:20], true, 5 * time.Second},
		{"sends no body of what is refused", "POST /v1/none HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n", true, 30 * time.Second},
		{"asks for nothing more", request, true, 2 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			api, err := New(Config{Client: client.Config{Endpoints: []string{"127.0.0.1:1"}}})
			if err != nil {
				t.Fatal(err)
			}
			srv, l, served := Server(api, slog.New(slog.DiscardHandler)), make(pipes), make(chan struct{})
			go func() { defer close(served); _ = srv.Serve(LimitListener(l)) }()
			conn, accepted := net.Pipe()
			closed := make(chan struct{})
			l <- closing{accepted, sync.OnceFunc(func() { close(closed) })}
			if _, err := io.WriteString(conn, c.sends); err != nil {
				t.Fatal(err)
			}
			if c.reads {
				go func() { _, _ = io.Copy(io.Discard, conn) }()
			}
			began := time.Now()
			<-closed
			if got := time.Since(began); got != c.after {
				t.Errorf("a caller that %s is cut after %s, not %s", c.what, got, c.after)
			}
			_ = conn.Close()
			close(l)
			<-served
			_ = srv.Close()
			api.Close()
		})
	}
}

// TestUnknownService: a service that the gateway knows nothing of when the cluster goes away is no
// empty list.
func TestUnknownService(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	s := openSite(t, srv)
	s.ask("GET", "/v1/locks", "", "").wants(200) // it is connected
	srv.Unreachable()
	srv.DropConnections()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // instead of the answer's 10 s
	defer cancel()
	r, w := httptest.NewRequestWithContext(ctx, "GET", "/v1/services/api", nil), httptest.NewRecorder()
	r.Host = "localhost"
	s.api.ServeHTTP(w, r)
	var doc document
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || w.Code != 503 || doc["code"] != "unavailable" {
		t.Errorf("answered %d %s, %v", w.Code, w.Body, err)
	}
	srv.Reachable()
	if a := s.ask("GET", "/v1/services/api", "", "").wants(200); len(a.doc["endpoints"].([]any)) != 0 {
		t.Errorf("answered %s", a.body)
	}
}

// TestWaitOutlivesWrites: a request may wait for longer than its answer may take to be written.
func TestWaitOutlivesWrites(t *testing.T) {
	t.Parallel()
	s := openSite(t, servertest.Start(t, servertest.RealTime()))
	tag := s.ask("PUT", "/v1/config/name", "", "value").wants(200).header.Get("ETag")
	srv := s.serve()
	srv.WriteTimeout = 10 * time.Millisecond
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(LimitListener(l)) }()
	defer func() { _ = srv.Close(); <-served }()
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+l.Addr().String()+"/v1/config/name?wait=200ms", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("If-None-Match", tag)
	c := &http.Client{Transport: &http.Transport{}}
	defer c.CloseIdleConnections()
	a, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = a.Body.Close()
	if a.StatusCode != http.StatusNotModified {
		t.Errorf("answered %s", a.Status)
	}
}
