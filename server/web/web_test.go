package web

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// pipe is an end of a connection in memory, of a host.
type pipe struct {
	net.Conn
	host string
}

func (p pipe) RemoteAddr() net.Addr { return textAddr(p.host + ":1") }

type textAddr string

func (t textAddr) Network() string { return "tcp" }
func (t textAddr) String() string  { return string(t) }

// pipes is a listener of connections in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return textAddr("127.0.0.1:1") }

// TestConnectionsAreBounded: one connection too many takes the place of a stranger's, of the host
// with the most; never of one that is kept. Without such a one it is refused.
func TestConnectionsAreBounded(t *testing.T) {
	const limit = 128
	conns := make(pipes, 1)
	l := LimitListener(conns, limit, "too many connections").(*limitListener)
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
	end := KeepConnection(context.WithValue(t.Context(), connKey{}, net.Conn(kept)))
	visitor, _ := connect("10.0.0.2")
	known, idle := connect("10.0.0.3")
	KeepConnection(context.WithValue(t.Context(), connKey{}, net.Conn(idle)))()
	var strangers []net.Conn
	for range 3 * limit {
		c, _ := connect("10.6.6.6")
		strangers = append(strangers, c)
	}
	if l.open != limit {
		t.Fatalf("%d connections are open", l.open)
	}
	if closed(person) || closed(visitor) || closed(known) {
		t.Error("strangers closed the connections of others")
	}
	if !closed(strangers[0]) || closed(strangers[len(strangers)-1]) {
		t.Error("not the oldest of the strangers' connections was closed")
	}

	// All are kept.
	var ends []func()
	for l.idle.Len() > 0 {
		c := l.idle.First().Item.conns.Front().Value.(*limitedConn)
		ends = append(ends, KeepConnection(context.WithValue(t.Context(), connKey{}, net.Conn(c))))
	}
	conns <- pipe{func() net.Conn {
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
	for _, end := range ends {
		end()
	}
	for l.idle.Len() > 0 {
		_ = l.idle.First().Item.conns.Front().Value.(*limitedConn).Close()
	}
	if l.open != 0 || len(l.group) != 0 {
		t.Errorf("%d connections of %d hosts are counted after their end", l.open, len(l.group))
	}
}

// TestVictims: which connection is closed agrees with a search through all of them, whatever was
// opened, kept and closed before.
func TestVictims(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 8
		l := LimitListener(nil, limit, "").(*limitListener)
		var idle []*limitedConn // the one that is idle for longest first
		type keeping struct {
			c   *limitedConn
			end func()
		}
		var kept []keeping
		forget := func(c *limitedConn) { idle = slices.DeleteFunc(idle, func(o *limitedConn) bool { return o == c }) }
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch step := rapid.IntRange(0, 3).Draw(t, "step"); {
			case step <= 1:
				var victim *limitedConn
				size := func(c *limitedConn) (n int) {
					for _, o := range idle {
						if o.host == c.host && o.known == c.known {
							n++
						}
					}
					return n
				}
				for _, c := range idle {
					if victim == nil || !c.known && victim.known || c.known == victim.known && size(c) > size(victim) {
						victim = c
					}
				}
				most := 0
				if victim != nil {
					most = size(victim)
				}
				full := len(idle)+len(kept) == limit
				host := rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}).Draw(t, "host")
				c := l.add(pipe{discard{}, host})
				if (c == nil) != (full && victim == nil) {
					t.Fatalf("a place for one more: %t", c != nil)
				}
				if full && victim != nil {
					i := slices.IndexFunc(idle, func(o *limitedConn) bool { return o.closed })
					if i < 0 || idle[i].known != victim.known || size(idle[i]) != most {
						t.Fatalf("closed is %d, not one of a host with %d like %v", i, most, victim)
					}
					if first := slices.IndexFunc(idle, func(o *limitedConn) bool {
						return o.host == idle[i].host && o.known == idle[i].known
					}); first != i {
						t.Fatalf("closed is connection %d of its host, not the one that is idle for longest", i)
					}
					forget(idle[i])
				}
				if c != nil {
					idle = append(idle, c)
				}
			case step == 2 && len(idle) > 0:
				c := rapid.SampledFrom(idle).Draw(t, "conn")
				forget(c)
				if rapid.Bool().Draw(t, "keep") {
					kept = append(kept, keeping{c, KeepConnection(context.WithValue(context.Background(), connKey{}, net.Conn(c)))})
				} else {
					_ = c.Close()
				}
			case step == 3 && len(kept) > 0:
				kept[0].end()
				idle, kept = append(idle, kept[0].c), kept[1:]
			}
		}
	})
}

// discard is a connection that only closes.
type discard struct{ net.Conn }

func (discard) Close() error { return nil }

// TestKnownHost: loopback in each form, and the names that are given; no other one.
func TestKnownHost(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "localhost:7073": true, "LOCALHOST.": true, "127.0.0.1:80": true, "127.9.9.9": true, "[::1]:80": true,
		"[::1]": true, "db.example.com:80": true, "DB.example.com": true, "db.example.com.": true, "example.com": false,
		"10.0.0.1": false, "localhost.example.com": false, "": false, "127.0.0.1.example.com": false,
		"localhost:evil": false, "localhost:": true, "localhost:99999": false, "[::1]:x": false,
	} {
		if got := KnownHost(host, []string{"db.example.com"}); got != want {
			t.Errorf("host %q is known: %t", host, got)
		}
	}
}

// brokenConn is a connection whose reads fail.
type brokenConn struct {
	net.Conn
	err error
}

func (c brokenConn) Read([]byte) (int, error) { return 0, c.err }

// TestLost: a connection that broke by itself is lost, and one that an end closed is not.
func TestLost(t *testing.T) {
	for err, want := range map[error]bool{
		syscall.ETIMEDOUT: true, syscall.EHOSTUNREACH: true, io.EOF: false, syscall.ECONNRESET: false, net.ErrClosed: false,
		os.ErrDeadlineExceeded: false,
	} {
		c := &limitedConn{Conn: brokenConn{err: &net.OpError{Op: "read", Err: err}}}
		if _, got := c.Read(nil); !errors.Is(got, err) {
			t.Errorf("read: %v, want %v", got, err)
		}
		if got := Lost(context.WithValue(t.Context(), connKey{}, net.Conn(c))); got != want {
			t.Errorf("after %v it is lost: %t", err, got)
		}
	}
}

// TestOtherProtocols: a client of another protocol is told at once; requests, and handshakes of TLS,
// are read as they come.
func TestOtherProtocols(t *testing.T) {
	for first, refused := range map[string]bool{
		"\x00\x00\x00\x30\x94": true, "GET / HTTP/1.1": false, "\r\nGET /": false, "\x16\x03\x01": false,
	} {
		l := LimitListener(make(pipes), 1, "full").(*limitListener)
		a, b := net.Pipe()
		c := l.add(pipe{b, "10.0.0.1"})
		answer := make(chan string)
		go func() {
			_, _ = io.WriteString(a, first)
			_ = a.SetReadDeadline(time.Now().Add(time.Minute))
			got, _ := io.ReadAll(a)
			answer <- string(got)
		}()
		buf := make([]byte, 64)
		n, err := c.Read(buf)
		_ = c.Close()
		if got := <-answer; refused != (err != nil) || refused != strings.Contains(got, "400 Bad Request") ||
			!refused && string(buf[:n]) != first {
			t.Errorf("%q is read as %q (%v) and answered %q", first, buf[:n], err, got)
		}
		_ = a.Close()
	}
}
