package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/httpapi/machine"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// events are those of a stream.
type events struct {
	t     *testing.T
	lines *bufio.Scanner
	close func() // hangs up
}

// stream asks for the events of a lock.
func (s *site) stream(path, session string, header ...string) *events {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	s.t.Cleanup(cancel)
	resp, err := s.events(ctx, path, session, header...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" ||
		resp.Header.Get("X-Accel-Buffering") != "no" {
		b, _ := io.ReadAll(resp.Body)
		s.t.Fatalf("answered %d %v %s", resp.StatusCode, resp.Header, b)
	}
	return &events{t: s.t, lines: bufio.NewScanner(resp.Body), close: cancel}
}

// events asks for the events of a lock, until ctx ends.
func (s *site) events(ctx context.Context, path, session string, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, "POST", s.url+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if session != "" {
		req.Header.Set(sessionHeader, session)
	}
	for _, line := range header {
		key, value, _ := strings.Cut(line, ": ")
		req.Header.Add(key, value)
	}
	return s.web.Do(req)
}

// next is the next event; empty at the end.
func (e *events) next() (event string, d document) {
	for e.lines.Scan() {
		key, value, _ := strings.Cut(e.lines.Text(), ": ")
		switch key {
		case "event":
			event = value
		case "data":
			decoder := json.NewDecoder(strings.NewReader(value))
			decoder.UseNumber()
			if err := decoder.Decode(&d); err != nil {
				e.t.Errorf("%s: %v", value, err)
			}
		}
		if e.lines.Text() == "" && event != "" {
			return event, d
		}
	}
	return "", nil
}

// wants reads events until one of a kind. Before it only those may come that tell of time and
// places.
func (e *events) wants(event string) *answer {
	e.t.Helper()
	for {
		got, d := e.next()
		if got == event {
			return &answer{t: e.t, status: 200, doc: d}
		}
		if got != "alive" && got != "queued" {
			e.t.Fatalf("the event is %q %v, want %q", got, d, event)
		}
	}
}

// ends reports the code of the stream's last event, with which it ends.
func (e *events) ends(event string) string {
	e.t.Helper()
	a := e.wants(event)
	if got, d := e.next(); got != "" {
		e.t.Errorf("after %s comes %s %v", event, got, d)
	}
	code, _ := a.doc["code"].(string)
	return code
}

// TestStream: a stream tells its place in the queue, its grant and each third of its ttl, and its
// session ends with it, however its caller goes.
func TestStream(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	s := openSite(t, srv)
	first := s.stream("/v1/locks/jobs?holder=first", "")
	got := first.wants("acquired")
	if left := got.number("expires_in_ms"); left < 1 || left > streamTTL.Milliseconds() || got.doc["holder"] != "first" || got.doc["waited_ms"] != nil {
		t.Errorf("acquired %v", got.doc)
	}
	second := s.stream("/v1/locks/jobs?wait=1m&ttl=5s", "")
	queued := second.wants("queued")
	if holders := queued.doc["holders"].([]any); queued.number("position") != 1 || holders[0].(map[string]any)["holder"] != "first" {
		t.Errorf("queued %v", queued.doc)
	}
	s.stream("/v1/locks/jobs?wait=1m", "").close() // gone from the queue at once
	s.stream("/v1/locks/jobs", "").ends("not_acquired")
	first.close()
	next := second.wants("acquired")
	if next.number("token") <= got.number("token") {
		t.Errorf("token %d after %d", next.number("token"), got.number("token"))
	}
	if a := second.wants("alive"); a.number("token") != next.number("token") || a.number("expires_in_ms") > 5000 || a.doc["time"] == nil {
		t.Errorf("alive: %v", a.doc)
	}
	// A half-closed connection ends it, too.
	second.close()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST /v1/locks/jobs?wait=1m HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
	raw := &events{t: t, lines: bufio.NewScanner(conn)}
	raw.wants("acquired")
	_ = conn.(*net.TCPConn).CloseWrite()
	last := s.stream("/v1/locks/jobs?wait=1m", "")
	last.wants("acquired")
	last.close()
	await.True(t, "the end of the sessions", func() bool { return len(s.sessions()) == 0 })
	s.ask("POST", "/v1/locks/jobs?ttl=4s", "", "", "Accept: text/event-stream").wants(400, "bad_request")
	s.ask("POST", "/v1/locks/jobs", bob, "", "Accept: text/event-stream").wants(410, "session_expired")
	for _, accept := range []string{"text/html", "application/json;q=0", "text/event-stream, text/html"} {
		s.ask("GET", "/v1/locks/jobs", "", "", "Accept: "+accept).wants(406, "not_acceptable")
	}
	s.ask("GET", "/v1/locks/jobs", "", "", "Accept: text/html, */*;q=0.1").wants(200)
}

// sessions are all sessions of a gateway.
func (s *site) sessions() (list []*session) {
	s.api.mu.Lock()
	defer s.api.mu.Unlock()
	for _, x := range s.api.sessions {
		list = append(list, x)
	}
	return list
}

// TestNamedStream: a stream of a named session keeps it alive and leaves it its ttl; it ends by a
// newer one, a release, a move and a stop, each with what to do.
func TestNamedStream(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	one, two := openSite(t, srv), openSite(t, srv)
	older := one.stream("/v1/locks/a?ttl=30s", alice)
	token := older.wants("acquired").number("token")
	newer := one.stream("/v1/locks/a", alice)
	if newer.wants("acquired").number("token") != token {
		t.Error("the newer stream has another token")
	}
	if code := older.ends("lost"); code != "aborted" {
		t.Errorf("the older stream ends with %q", code)
	}
	one.ask("DELETE", "/v1/locks/a", alice, "").wants(200)
	if code := newer.ends("lost"); code != "lease_lost" {
		t.Errorf("a released lock ends its stream with %q", code)
	}
	moves := one.stream("/v1/locks/a", alice)
	token = moves.wants("acquired").number("token")
	if got := two.stream("/v1/locks/a", alice).wants("acquired"); got.number("token") != token {
		t.Errorf("after a move: %v", got.doc)
	}
	if code := moves.ends("closing"); code != "session_moved" {
		t.Errorf("the stream that is left behind ends with %q", code)
	}

	own := two.stream("/v1/locks/b", "")
	own.wants("acquired")
	waiting := two.stream("/v1/locks/b?ttl=30s&wait=1m", bob)
	waiting.wants("queued")
	two.api.Stop()
	own.ends("closing")
	waiting.ends("closing")
	if got := one.stream("/v1/locks/a", alice).wants("acquired"); got.number("token") != token {
		t.Errorf("after the stop of its gateway: %v", got.doc)
	}
	one.stream("/v1/locks/b?wait=1m", bob).wants("acquired") // free at once, and the place was kept
}

// TestStreamOfHTTP2: the reset of a stream of HTTP/2 ends it, and no other one of the connection.
func TestStreamOfHTTP2(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	s := openSite(t, srv)
	secure := httptest.NewUnstartedServer(nil)
	secure.Config = s.serve()
	secure.Listener = LimitListener(secure.Listener)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	defer secure.Close()
	s.url, s.web = secure.URL, secure.Client()
	one, two := s.stream("/v1/locks/a", ""), s.stream("/v1/locks/b?ttl=5s", "")
	one.wants("acquired")
	two.wants("acquired")
	one.close()
	three := s.stream("/v1/locks/a?wait=1m", "")
	three.wants("acquired")
	two.wants("alive")
	two.close()
	three.close()
}

// TestChunkedStream: a stream ends as the coding of its answer says, with TLS too.
func TestChunkedStream(t *testing.T) {
	t.Parallel()
	f := openFaces(t, servertest.Start(t, servertest.RealTime()))
	var list []*events
	for name, secure := range map[string]bool{"a": false, "b": true} {
		conn := f.dial(t, secure)
		defer conn.Close()
		_, _ = io.WriteString(conn, "POST /v1/locks/"+name+"?ttl=5s HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		e := &events{t: t, lines: bufio.NewScanner(resp.Body)}
		e.wants("acquired")
		list = append(list, e)
	}
	for _, e := range list {
		e.wants("alive")
	}
	f.api.Close()
	for _, e := range list {
		e.ends("closing")
		if err := e.lines.Err(); err != nil {
			t.Errorf("the answer ends with %v", err)
		}
	}
}

// TestStreamLoses: a stream whose cluster is away is told so before its belief is over.
func TestStreamLoses(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	s := openSite(t, srv)
	e := s.stream("/v1/locks/a?ttl=5s", alice)
	until := time.Now().Add(time.Duration(e.wants("acquired").number("expires_in_ms")) * time.Millisecond)
	srv.Kill()
	for {
		event, d := e.next()
		if event == "lost" {
			break
		}
		if event != "alive" {
			t.Fatalf("%s %v", event, d)
		}
		until = time.Now().Add(time.Duration((&answer{t: t, doc: d}).number("expires_in_ms")) * time.Millisecond)
	}
	if left := time.Until(until); left < 0 {
		t.Logf("it is told %s after the end of its belief, which it has found out itself", -left)
	}
}

// faulty is a listener whose connections break on demand, as if their peers were gone.
type faulty struct {
	net.Listener
	broken *atomic.Bool
}

type faultyConn struct {
	net.Conn
	broken *atomic.Bool
}

func (l faulty) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return faultyConn{c, l.broken}, err
}

func (c faultyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && c.broken.Load() {
		return 0, &net.OpError{Op: "read", Err: syscall.ETIMEDOUT}
	}
	return n, err
}

// TestLostHasItsCause: a stream whose session somebody ends, or whose node is deleted, says so.
func TestLostHasItsCause(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	s := openSite(t, srv)
	c, err := client.Dial(t.Context(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseWithoutRelease()
	nodes := admin.Nodes(c)
	if _, err := nodes.Create(t.Context(), "/short", admin.NodeConfig{}); err != nil {
		t.Fatal(err)
	}
	node, err := c.Node(t.Context(), "/default")
	if err != nil {
		t.Fatal(err)
	}
	killed, deleted := s.stream("/v1/locks/a", ""), s.stream("/v1/locks/a?node=/short", "")
	why := func(a *answer) any {
		loss, _ := a.doc["loss"].(map[string]any)
		return loss["cause"]
	}
	id := killed.wants("acquired").doc["session_id"].(string)
	deleted.wants("acquired")
	killSession(t, srv, id)
	if a := killed.wants("lost"); a.doc["code"] != "session_expired" || !strings.Contains(fmt.Sprint(a.doc["detail"]), "the rack moves") {
		t.Errorf("a killed session ends its stream with %v", a.doc)
	} else if why(a) != "session_ended_by_operator" {
		t.Errorf("a killed session ends its stream for %v", a.doc["loss"])
	}
	if _, err := nodes.Delete(t.Context(), "/short", admin.DeleteOptions{Force: true, Reason: "a test"}); err != nil {
		t.Fatal(err)
	}
	if a := deleted.wants("lost"); !strings.Contains(fmt.Sprint(a.doc["detail"]), "node was deleted") || why(a) != "node_deleted" {
		t.Errorf("a deleted node ends its stream with %v", a.doc)
	}

	// Without a stream, the next request is told.
	const session = "a-session-that-is-killed"
	killSession(t, srv, s.ask("POST", "/v1/locks/b?ttl=5m", session, "").wants(200).doc["session_id"].(string))
	await.True(t, "the end of the session", func() bool { return len(s.sessions()) == 0 })
	if a := s.ask("POST", "/v1/session/keepalive?holding=b", session, "").wants(410); why(a) != "session_ended_by_operator" {
		t.Errorf("a killed session is answered %v", a.doc)
	}
	got := s.ask("POST", "/v1/locks/c?ttl=5m", "a-session-that-loses", "").wants(200)
	token, err := strconv.ParseUint(fmt.Sprint(got.doc["token"]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.OfNode(node).ForceRelease(t.Context(), "c", token, token, "a test"); err != nil {
		t.Fatal(err)
	}
	var after *answer
	await.True(t, "the loss of the lease", func() bool {
		after = s.ask("POST", "/v1/session/keepalive?holding=c", "a-session-that-loses", "")
		return why(after) != nil
	})
	if after.wants(410); why(after) != "released_by_operator" || after.doc["name"] != "c" {
		t.Errorf("a lease that was taken away is answered %v", after.doc)
	}
}

// killSession ends a session as an operator does.
func killSession(t *testing.T, srv *servertest.Server, id string) {
	t.Helper()
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(t.Context(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseWithoutRelease()
	node, err := c.Node(t.Context(), "/default")
	if err != nil {
		t.Fatal(err)
	}
	if err := admin.OfNode(node).KillSession(t.Context(), n, "the rack moves"); err != nil {
		t.Fatal(err)
	}
}

// TestLostCaller: what the caller of a broken connection holds is kept until it has stopped
// believing.
func TestLostCaller(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	s := openSite(t, srv)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var broken atomic.Bool
	server := s.serve()
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(LimitListener(faulty{l, &broken})) }()
	defer func() { _ = server.Close(); <-served }()
	s.url = "http://" + l.Addr().String()
	e := s.stream("/v1/locks/a?ttl=5m", "")
	e.wants("acquired")
	x := s.sessions()[0]
	broken.Store(true)
	e.close()
	await.True(t, "the end of the stream", func() bool {
		x.mu.Lock()
		state, next := x.machine.State(), x.machine.Next()
		x.mu.Unlock()
		if state != machine.Live {
			t.Fatal("the session has ended, and its caller may believe in it")
		}
		return next != 0 // nobody calls
	})
}
