// How is a gateway for HTTP driven, ours and etcd's, and how Redis, by a request at a time?

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// caller is a connection with a request at a time. It costs less than net/http's client, so that
// more of the machine is the gateway's.
type caller struct {
	net.Conn
	r      *bufio.Reader
	header string // of each request
}

// dialCaller connects, by TLS if secure is not nil. session is a session's name; empty: none.
func dialCaller(addr string, secure *tls.Config, session string) (*caller, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	if secure != nil {
		conn = tls.Client(conn, secure)
	}
	c := &caller{conn, bufio.NewReaderSize(conn, 1024), "Host: " + addr + "\r\n"}
	if session != "" {
		c.header += "Signalbox-Session: " + session + "\r\n"
	}
	return c, nil
}

// send sends a request. Lines of its own header end with CR LF.
func (c *caller) send(method, path, lines, body string) error {
	_, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\n%s%sContent-Length: %d\r\n\r\n%s", method, path, c.header, lines,
		len(body), body)
	return err
}

// receive reads an answer whose header says how long it is.
func (c *caller) receive() (status string, body []byte, err error) {
	length := -1
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return "", nil, err
		}
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			break
		}
		if status == "" {
			status = string(line[min(len(line), len("HTTP/1.1 ")):])
		} else if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return "", nil, err
			}
		}
	}
	if length < 0 {
		return "", nil, fmt.Errorf("the answer %q does not say how long it is", status)
	}
	body = make([]byte, length)
	_, err = io.ReadFull(c.r, body)
	return status, body, err
}

// ask sends a request, and reads its answer into a document, unless that is nil. It fails if the
// answer is not 200.
func (c *caller) ask(method, path, body string, into any) error {
	_ = c.SetDeadline(time.Now().Add(answerTimeout))
	if err := c.send(method, path, "", body); err != nil {
		return err
	}
	status, b, err := c.receive()
	if err != nil {
		return err
	}
	if status != "200 OK" {
		return fmt.Errorf("%s %s is answered %s: %s", method, path, status, b)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(b, into)
}

// gateway is one for HTTP, as a target of loads. A connection is for one session.
type gateway struct {
	addr   string
	secure *tls.Config
	etcd   bool // it is etcd's, with a lease for a session
	made   atomic.Int64
}

func (g *gateway) Name() string { return "gateway at " + g.addr }

func (g *gateway) Code(err error) string { return codeOf(err) }

func (g *gateway) Open(context.Context) (loadgen.Conn, error) { return g.open() }

func (g *gateway) open() (*gatewayConn, error) {
	session := ""
	if !g.etcd {
		session = fmt.Sprintf("session-%d-at-%s", g.made.Add(1), g.addr)
	}
	c, err := dialCaller(g.addr, g.secure, session)
	if err != nil {
		return nil, err
	}
	return &gatewayConn{caller: c, etcd: g.etcd}, nil
}

type gatewayConn struct {
	*caller
	etcd  bool
	lease string // of etcd
}

// Session starts one; ours begins with its first acquire.
func (c *gatewayConn) Session(context.Context) (loadgen.Session, error) {
	return gatewaySession{c}, c.start()
}

func (c *gatewayConn) start() error {
	if !c.etcd {
		return nil
	}
	var got struct{ ID string }
	err := c.ask("POST", "/v3/lease/grant", `{"TTL":60}`, &got)
	c.lease = got.ID
	return err
}

// Close ends the session too.
func (c *gatewayConn) Close() error {
	_ = c.end() // without a session it fails
	return c.caller.Close()
}

func (c *gatewayConn) end() error {
	if c.etcd {
		return c.ask("POST", "/v3/lease/revoke", `{"ID":`+c.lease+`}`, nil)
	}
	return c.ask("DELETE", "/v1/session", "", nil)
}

// acquire takes a lock, which release releases.
func (c *gatewayConn) acquire(name string) (release func() error, err error) {
	if c.etcd {
		var got struct{ Key string }
		err := c.ask("POST", "/v3/lock/lock",
			fmt.Sprintf(`{"name":%q,"lease":%s}`, base64.StdEncoding.EncodeToString([]byte(name)), c.lease), &got)
		return func() error { return c.ask("POST", "/v3/lock/unlock", `{"key":"`+got.Key+`"}`, nil) }, err
	}
	var got struct{ Token uint64 }
	err = c.ask("POST", "/v1/locks/"+name+"?ttl=60s&wait=10s", "", &got)
	if err == nil && got.Token == 0 {
		err = errors.New("a grant has no token")
	}
	return func() error { return c.ask("DELETE", "/v1/locks/"+name, "", nil) }, err
}

type gatewaySession struct{ c *gatewayConn }

func (s gatewaySession) Close(context.Context) error { return nil }

func (s gatewaySession) Acquirer(loadgen.AcquireOptions) loadgen.Acquirer {
	return loadgen.AcquirerFunc(func(_ context.Context, name string) (loadgen.Lease, error) {
		release, err := s.c.acquire(name)
		if err != nil {
			return nil, err
		}
		return loadgen.LeaseFunc(func(context.Context) error { return release() }), nil
	})
}

// cold connects, starts a session, holds a lock, and ends the session.
func (g *gateway) cold(name string) error {
	c, err := g.open()
	if err != nil {
		return err
	}
	defer c.caller.Close()
	if err := c.start(); err != nil {
		return err
	}
	if _, err := c.acquire(name); err != nil {
		return err
	}
	return c.end()
}

// redisAnswer sends a command to Redis, and returns the line of its answer without its type.
func (c *caller) redisAnswer(words ...string) (string, error) {
	b := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, w := range words {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(w), w)
	}
	_ = c.SetDeadline(time.Now().Add(answerTimeout))
	if _, err := c.Write(b); err != nil {
		return "", err
	}
	line, err := c.r.ReadString('\n')
	if err == nil && line[0] == '$' {
		line, err = c.r.ReadString('\n')
		return strings.TrimSpace(line), err
	}
	if err == nil && line[0] == '-' {
		err = errors.New(line)
	}
	return strings.TrimSpace(strings.TrimLeft(line, ":+")), err
}

// heldStream is a caller that reads the events of a lock that it holds.
type heldStream struct {
	*caller
	lines *bufio.Reader
	until time.Time // it believes in the lock until then
	late  int       // events that came when it did not believe any more
}

// openStream acquires a lock, and returns when the event of the grant came.
func openStream(addr, name string) (*heldStream, error) {
	c, err := dialCaller(addr, nil, "")
	if err != nil {
		return nil, err
	}
	if err := c.send("POST", "/v1/locks/"+name+"?wait=1m", "Accept: text/event-stream\r\n", ""); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return nil, err
	}
	s := &heldStream{caller: c, lines: bufio.NewReaderSize(resp.Body, 512)}
	for s.until.IsZero() && err == nil {
		err = s.next()
	}
	return s, err
}

// next reads a line. It fails at the end of the stream, and at an event that ends it.
func (s *heldStream) next() error {
	line, err := s.lines.ReadString('\n')
	if err != nil {
		return err
	}
	event, ok := strings.CutPrefix(line, "event: ")
	if ok && !slices.Contains([]string{"queued\n", "acquired\n", "alive\n"}, event) {
		return errors.New(event)
	}
	_, rest, ok := strings.Cut(line, `"expires_in_ms":`)
	if !ok {
		return nil
	}
	end := strings.IndexAny(rest, ",}")
	left, err := strconv.Atoi(rest[:max(end, 0)])
	now := time.Now()
	if !s.until.IsZero() && now.After(s.until) {
		s.late++
	}
	s.until = now.Add(time.Duration(left) * time.Millisecond)
	return err
}
