package console

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
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

// TestConnectionsAreBounded: one connection too many takes the place of a stranger's, of the host
// with the most; never of one on which somebody sees a page. Without such a one it is refused.
func TestConnectionsAreBounded(t *testing.T) {
	l := &limitListener{Listener: &pipes{conns: make(chan net.Conn, 1), done: make(chan struct{})}}
	connect := func(host string) (client net.Conn, server *limitedConn) {
		a, b := net.Pipe()
		t.Cleanup(func() { _ = a.Close() })
		return a, l.add(pipe{b, host})
	}
	closed := func(c net.Conn) bool {
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, err := c.Read(make([]byte, 1))
		return errors.Is(err, io.EOF)
	}
	person, kept := connect("10.0.0.1")
	end := keepConnection(context.WithValue(t.Context(), connKey{}, net.Conn(kept)))
	visitor, _ := connect("10.0.0.2")
	known, idle := connect("10.0.0.3")
	keepConnection(context.WithValue(t.Context(), connKey{}, net.Conn(idle)))()
	var strangers []net.Conn
	for range 3 * maxConnections {
		c, _ := connect("10.6.6.6")
		strangers = append(strangers, c)
	}
	if len(l.open) != maxConnections {
		t.Fatalf("%d connections are open", len(l.open))
	}
	if closed(person) || closed(visitor) || closed(known) {
		t.Error("strangers closed the connections of others")
	}
	if !closed(strangers[0]) || closed(strangers[len(strangers)-1]) {
		t.Error("not the oldest of the strangers' connections was closed")
	}

	// All have a page.
	for _, c := range l.open {
		c.pages++
	}
	l.Listener.(*pipes).conns <- pipe{func() net.Conn {
		a, b := net.Pipe()
		go func() {
			resp, err := http.ReadResponse(bufio.NewReader(a), nil)
			if err != nil {
				t.Error(err)
			} else {
				body, err := io.ReadAll(resp.Body)
				if resp.StatusCode != 503 || !strings.Contains(string(body), "too many connections") || err != nil {
					t.Errorf("answered %d %s, %v", resp.StatusCode, body, err)
				}
			}
			_ = a.Close()
			_ = l.Close()
		}()
		return b
	}(), "10.0.0.4"}
	if c, err := l.Accept(); err == nil {
		t.Errorf("connection %v was accepted", c)
	}
	end()
	for _, c := range l.open {
		c.pages = 0
	}
	for len(l.open) > 0 {
		_ = l.open[0].Close()
	}
}

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
