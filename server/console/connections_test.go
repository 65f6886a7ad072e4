package console

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipe is an end of a connection in memory, of a host.
type pipe struct {
	net.Conn
	host string
}

func (p pipe) RemoteAddr() net.Addr { return text4(p.host + ":1") }

type text4 string

func (t text4) Network() string { return "tcp" }
func (t text4) String() string  { return string(t) }

// pipes is a listener of connections in memory.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return text4("127.0.0.1:1") }

// TestIdleConnectionsKeepNobodyOut: a stranger who holds all connections, without a request, does
// not keep a person from the pages.
func TestIdleConnectionsKeepNobodyOut(t *testing.T) {
	for _, secure := range []bool{false, true} {
		s := openSite(t, func(c *Config) { c.Secure = secure })
		_, host, _ := strings.Cut(s.url, "//")
		for range maxConnections {
			var c net.Conn
			var err error
			if c, err = net.Dial("tcp", host); err == nil && secure {
				x := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
				c, err = x, x.HandshakeContext(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
		}
		x := s.open("/sessions")
		x.until("the view", func(name string, _ update) bool { return name == "view" })
		for range maxConnections {
			c, err := net.Dial("tcp", host)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
		}
		s.get("/sessions").wants(t, 200)
		s.session()
		x.until("the session, on the same stream", func(_ string, u update) bool {
			keys, _ := keysOf(u, "sessions")
			return len(keys) == 1
		})
	}
}

// TestSlowRequests: a request that has not arrived after 5 s is given up, its header and its form.
func TestSlowRequests(t *testing.T) {
	const header = "POST /login HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\n" +
		"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 20\r\n"
	for _, sent := range []string{"", header[:30], header, header + "\r\ntoken=abc"} {
		synctest.Test(t, func(t *testing.T) {
			l := &pipes{conns: make(chan net.Conn, 1), done: make(chan struct{})}
			form := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if err := r.ParseForm(); err == nil {
					t.Error("the form came whole")
				}
				w.WriteHeader(http.StatusBadRequest)
			})
			srv := Server(&guard{pages: form}, slog.New(slog.DiscardHandler))
			served := make(chan struct{})
			go func() {
				defer close(served)
				_ = srv.Serve(LimitListener(l))
			}()
			mine, its := net.Pipe()
			l.conns <- pipe{its, "10.0.0.1"}
			if sent != "" {
				if _, err := io.WriteString(mine, sent); err != nil {
					t.Error(err)
				}
			}
			began := time.Now()
			_, _ = io.Copy(io.Discard, mine) // until it is closed
			if took := time.Since(began); took < requestTimeout || took > 2*requestTimeout {
				t.Errorf("%q: given up after %s", sent, took)
			}
			_ = mine.Close()
			_ = srv.Close()
			<-served
		})
	}
}

// TestAttempts: a new attempt ends the oldest of the host with the most.
func TestAttempts(t *testing.T) {
	var a attempts
	person, done := a.begin(t.Context(), "10.0.0.1")
	var strangers []context.Context
	for range 10 * maxLogins {
		ctx, end := a.begin(t.Context(), "10.6.6.6")
		defer end()
		strangers = append(strangers, ctx)
	}
	if person.Err() != nil {
		t.Error("a stranger ended the attempt of a person at another host")
	}
	for i, ctx := range strangers {
		if over := i < len(strangers)-(maxLogins-1); (ctx.Err() != nil) != over || over && context.Cause(ctx) != errOvertaken {
			t.Fatalf("attempt %d of %d: %v, because of %v", i, len(strangers), ctx.Err(), context.Cause(ctx))
		}
	}
	done()
	if len(a.running) != maxLogins-1 {
		t.Errorf("%d attempts run", len(a.running))
	}
	// From as many hosts as there are places.
	for i := range 2 * maxLogins {
		ctx, end := a.begin(t.Context(), fmt.Sprint("10.7.7.", i))
		defer end()
		if ctx.Err() != nil {
			t.Error("a new attempt was ended at once")
		}
	}
}
