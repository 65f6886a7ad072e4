package httpapi

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
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

// valve lets bytes pass, or holds them back in their order: a network or a process that stands still.
type valve struct {
	mu     sync.Mutex
	opened chan struct{} // closed while bytes pass
}

func newValve() *valve {
	v := &valve{opened: make(chan struct{})}
	close(v.opened)
	return v
}

func (v *valve) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.opened = make(chan struct{})
}

func (v *valve) open() {
	v.mu.Lock()
	defer v.mu.Unlock()
	select {
	case <-v.opened: // it is open
	default:
		close(v.opened)
	}
}

func (v *valve) pass() {
	v.mu.Lock()
	opened := v.opened
	v.mu.Unlock()
	<-opened
}

// valveConn is a connection whose bytes pass a valve, in both directions.
type valveConn struct {
	net.Conn
	valve *valve
}

func (c valveConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.valve.pass()
	return n, err
}

func (c valveConn) Write(b []byte) (int, error) {
	c.valve.pass()
	return c.Conn.Write(b)
}

// valveListener accepts connections whose bytes pass a valve.
type valveListener struct {
	net.Listener
	valve *valve
}

func (l valveListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return valveConn{c, l.valve}, nil
}

// behind serves a gateway under another address, whose requests pass a valve.
func (s *site) behind(t *testing.T, v *valve) *site {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := s.serve()
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(valveListener{l, v}) }()
	transport := &http.Transport{}
	t.Cleanup(func() {
		_ = server.Close()
		<-served
		transport.CloseIdleConnections()
	})
	return &site{t: t, api: s.api, url: "http://" + l.Addr().String(), web: &http.Client{Transport: transport}}
}

// TestLateRequests: a request that was held back, and arrives when newer ones of its session were
// answered here or at another gateway: what it is answered, and whether the session holds the name
// with the token of then (same), with another one (new), or not at all (free).
func TestLateRequests(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	one, two := openSite(t, srv), openSite(t, srv)
	states := map[string]func(s *site, name, session string, token int64){
		"holds": func(s *site, name, session string, token int64) {
			s.ask("POST", "/v1/session/keepalive?holding="+name, session, "").wants(200)
		},
		"released": func(s *site, name, session string, token int64) {
			s.ask("DELETE", fmt.Sprintf("/v1/locks/%s?token=%d", name, token), session, "").wants(200)
		},
		"granted again": func(s *site, name, session string, token int64) {
			s.ask("DELETE", fmt.Sprintf("/v1/locks/%s?token=%d", name, token), session, "").wants(200)
			s.ask("POST", "/v1/locks/"+name, session, "").wants(200)
		},
		"ended": func(s *site, name, session string, token int64) {
			// On a busy machine the answer may be late, and the session has ended when it is asked again.
			if a := s.ask("DELETE", "/v1/session", session, ""); a.status != 410 {
				a.wants(200)
			}
		},
	}
	for i, c := range []struct {
		method, path, state string
		status              int
		then                string
	}{
		{"POST", "/v1/locks/NAME?ttl=1m", "holds", 200, "same"},
		{"POST", "/v1/locks/NAME?ttl=1m", "released", 200, "new"}, // why each hold has a session of its own
		{"POST", "/v1/locks/NAME?ttl=1m", "granted again", 200, "new"},
		{"POST", "/v1/locks/NAME?ttl=1m", "ended", 410, "free"},
		{"DELETE", "/v1/locks/NAME?token=TOKEN", "holds", 200, "free"},
		{"DELETE", "/v1/locks/NAME?token=TOKEN", "released", 200, "free"},
		{"DELETE", "/v1/locks/NAME?token=TOKEN", "granted again", 200, "new"},
		{"DELETE", "/v1/locks/NAME?token=TOKEN", "ended", 410, "free"},
		{"DELETE", "/v1/locks/NAME", "granted again", 200, "free"}, // why a release has its token
		{"DELETE", "/v1/locks/NAME", "ended", 410, "free"},
		{"POST", "/v1/session/keepalive?holding=NAME", "holds", 200, "same"},
		{"POST", "/v1/session/keepalive?holding=NAME", "released", 410, "free"},
		{"POST", "/v1/session/keepalive?holding=NAME", "granted again", 200, "new"},
		{"POST", "/v1/session/keepalive?holding=NAME", "ended", 410, "free"},
		{"DELETE", "/v1/session", "granted again", 200, "free"},
		{"DELETE", "/v1/session", "ended", 410, "free"},
	} {
		for where, newer := range map[string]*site{"here": one, "elsewhere": two} {
			t.Run(strings.Join([]string{c.method, c.path, c.state, where}, " "), func(t *testing.T) {
				name, session := fmt.Sprintf("late-%d-%s", i, where), fmt.Sprintf("late-session-%d-%s", i, where)
				token := one.ask("POST", "/v1/locks/"+name+"?ttl=1m", session, "").wants(200).number("token")
				stands := newValve()
				stands.close()
				front := one.behind(t, stands)
				path := strings.NewReplacer("NAME", name, "TOKEN", fmt.Sprint(token)).Replace(c.path)
				late := front.begin(c.method, path, session, "")
				states[c.state](newer, name, session, token)
				stands.open()
				a := <-late
				if a.status == 503 && where == "elsewhere" { // it changes nothing
					return
				}
				if a.status != c.status {
					t.Errorf("answered %d %s, want %d", a.status, a.body, c.status)
				}
				owners, _ := two.ask("GET", "/v1/locks/"+name, "", "").wants(200).doc["owners"].([]any)
				then := "free"
				if len(owners) == 1 {
					then = "new"
					if fmt.Sprint(owners[0].(map[string]any)["token"]) == fmt.Sprint(token) {
						then = "same"
					}
				}
				if then != c.then {
					t.Errorf("then it is %s, want %s; answered %s", then, c.then, a.body)
				}
			})
		}
	}
}

// TestCutGateway: a gateway that hears nothing of the cluster says nothing of it. What it knew before
// was released, ended or moved at another one meanwhile.
func TestCutGateway(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	link := newValve()
	one, two := openSite(t, srv, func(cfg *Config) {
		cfg.Client.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err != nil {
				return nil, err
			}
			return valveConn{c, link}, nil
		}
	}), openSite(t, srv)
	for i, newer := range []func(name, session string){
		func(name, session string) { two.ask("DELETE", "/v1/locks/"+name, session, "").wants(200) },
		func(name, session string) { two.ask("DELETE", "/v1/session", session, "").wants(200) },
	} {
		name, session := fmt.Sprintf("cut-%d", i), fmt.Sprintf("cut-session-%d", i)
		token := one.ask("POST", "/v1/locks/"+name+"?ttl=5m", session, "").wants(200).number("token")
		link.close()
		newer(name, session)
		next := two.ask("POST", "/v1/locks/"+name+"?ttl=5m", "next-"+session, "").wants(200).number("token")
		if next <= token {
			t.Errorf("token %d after %d", next, token)
		}
		for _, a := range one.whileCut(link, session, "POST /v1/locks/"+name, "POST /v1/session/keepalive?holding="+name,
			"POST /v1/session/keepalive", "GET /v1/session") {
			if a.status < 400 || a.doc["token"] != nil {
				t.Errorf("answered %d %s", a.status, a.body)
			}
		}
	}
	// What another gateway was granted is not denied.
	one.ask("POST", "/v1/locks/other?ttl=5m", alice, "").wants(200)
	link.close()
	token := two.ask("POST", "/v1/locks/later?ttl=5m", alice, "").wants(200).number("token")
	for _, a := range one.whileCut(link, alice, fmt.Sprintf("DELETE /v1/locks/later?token=%d", token)) {
		if a.status == 200 && a.doc["released"] != true {
			t.Errorf("what is held is released: %s", a.body)
		}
	}
}

// TestCutEnd: a gateway does not say that it has ended a session which another one serves.
func TestCutEnd(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	link := newValve()
	one, two := openSite(t, srv, func(cfg *Config) {
		cfg.Client.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err != nil {
				return nil, err
			}
			return valveConn{c, link}, nil
		}
	}), openSite(t, srv)
	one.ask("POST", "/v1/locks/a?ttl=5m", alice, "").wants(200)
	link.close()
	two.ask("POST", "/v1/session/keepalive?holding=a", alice, "").wants(200)
	a := one.whileCut(link, alice, "DELETE /v1/session")[0]
	held := two.ask("GET", "/v1/locks/a", "", "").doc["exists"] == true
	if a.status == 200 && held {
		t.Errorf("answered %s, and the lock is held", a.body)
	}
}

// TestEndBesideMoves: what has been said to be ended, or released, is free, though the caller's
// keep-alives take its session to another gateway meanwhile. Their number has a bound: on a slow machine they can
// take the session back for ever.
func TestEndBesideMoves(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	one, two := openSite(t, srv), openSite(t, srv)
	for i := range 30 {
		session, name := fmt.Sprintf("moving-session-%d", i), fmt.Sprintf("/v1/locks/moving-%d", i)
		token := one.until("state", "POST", name+"?ttl=5m", session).wants(200).number("token")
		var renewing sync.WaitGroup
		ended := make(chan struct{})
		for range 4 {
			renewing.Go(func() {
				for range 50 {
					select {
					case <-ended:
						return
					default:
						one.ask("POST", "/v1/session/keepalive", session, "")
					}
				}
			})
		}
		path := []string{"/v1/session", name, fmt.Sprint(name, "?token=", token)}[i%3]
		said := two.until("ended", "DELETE", path, session)
		if a := two.ask("GET", name, "", "").wants(200); a.doc["exists"] == true {
			t.Errorf("DELETE %s was answered %s, and there is %s", path, said.body, a.body)
		}
		close(ended)
		renewing.Wait()
	}
}

// whileCut sends requests to a gateway whose link is closed, and opens that when each has been
// answered or waits.
func (s *site) whileCut(link *valve, session string, requests ...string) (answers []*answer) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, request := range requests {
		method, path, _ := strings.Cut(request, " ")
		all.Go(func() {
			a, err := s.try(s.t.Context(), method, path, session, "")
			if err != nil {
				s.t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answers = append(answers, a)
		})
	}
	await.True(s.t, "the requests at the gateway", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return int(s.api.held.Load())+len(answers) >= len(requests)
	})
	link.open()
	all.Wait()
	return answers
}

// TestForceReleased: a lease that an operator took away is not held, though the instance that says so
// cannot be heard while the session's own can.
func TestForceReleased(t *testing.T) {
	t.Parallel()
	cluster := servertest.StartCluster(t, 3, servertest.RealTime())
	links := make(map[string]*valve)
	for _, address := range cluster.Addrs() {
		links[address] = newValve()
	}
	s := openSite(t, cluster.Instance(0), func(cfg *Config) {
		cfg.Client.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err != nil {
				return nil, err
			}
			return valveConn{c, links[address]}, nil
		}
	})
	t.Cleanup(func() { // else the gateway's end waits for one that is closed
		for _, link := range links {
			link.open()
		}
	})
	c, err := client.Dial(t.Context(), cluster.Addrs()...)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseWithoutRelease()
	node, err := c.Node(t.Context(), "/default")
	if err != nil {
		t.Fatal(err)
	}
	for i := range sized(48, 24, 48) {
		for j, address := range cluster.Addrs() {
			name, session := fmt.Sprintf("forced-%d-%d", i, j), fmt.Sprintf("forced-session-%d-%d", i, j)
			token := s.ask("POST", "/v1/locks/"+name+"?ttl=5m", session, "").wants(200).number("token")
			links[address].close()
			unknown := false // a busy machine is late, and the next try may find it taken away
			await.True(t, "its lease is taken away", func() bool {
				_, err := admin.OfNode(node).ForceRelease(t.Context(), name, uint64(token), uint64(token), "a test")
				if errors.Is(err, client.ErrOutcomeUnknown) {
					unknown = true
				} else if err != nil && !(unknown && errors.Is(err, client.ErrNotFound)) {
					t.Fatal(err)
				}
				return !errors.Is(err, client.ErrOutcomeUnknown)
			})
			request := "POST /v1/session/keepalive?holding=" + name
			if i%2 == 0 {
				request = "POST /v1/locks/" + name
			}
			a := s.whileCut(links[address], session, request)[0]
			if a.status == 200 && (i%2 == 1 || a.number("token") <= token) {
				t.Errorf("it was taken away, and %s is answered %s", request, a.body)
			}
		}
	}
}

// TestRoundRobin: callers whose requests go to gateways in turn take turns at a lock: never two
// believe at once, and each grant has a higher token.
func TestRoundRobin(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	sites := []*site{openSite(t, srv), openSite(t, srv)}
	var turn, holders, last atomic.Int64
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			ask := func(method, path string) *answer {
				a, err := again(func() (*answer, error) {
					return sites[turn.Add(1)%2].try(t.Context(), method, path, fmt.Sprintf("round-robin-%d", i), "")
				}, func(a *answer) bool { return a.answered() && a.status != 202 })
				if err != nil {
					t.Error(err)
					return nil
				}
				return a
			}
			for range 25 {
				a := ask("POST", "/v1/locks/turns?ttl=1m&wait=1m")
				if a == nil {
					return
				}
				token := a.wants(200).number("token")
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d hold it at once", n)
				}
				if before := last.Swap(token); token <= before {
					t.Errorf("token %d after %d", token, before)
				}
				holders.Add(-1)
				if a := ask("DELETE", fmt.Sprintf("/v1/locks/turns?token=%d", token)); a != nil {
					a.wants(200)
				}
			}
		})
	}
	all.Wait()
}

// TestHalfClose: a caller that closes its side of the connection reads its answer; that of a stream
// ends before another session is granted the lock.
func TestHalfClose(t *testing.T) {
	t.Parallel()
	f := openFaces(t, servertest.Start(t, servertest.RealTime()))
	open := func(secure bool, request string) (net.Conn, *bufio.Reader) {
		conn := f.dial(t, secure)
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := io.WriteString(conn, request+" HTTP/1.1\r\nHost: localhost\r\n"); err != nil {
			t.Fatal(err)
		}
		return conn, bufio.NewReader(conn)
	}
	for _, secure := range []bool{false, true} {
		f.ask("POST", "/v1/locks/x?ttl=1m", fmt.Sprint("first-holder-", secure), "").wants(200)
		session := fmt.Sprintf("Signalbox-Session: half-close-%t\r\n\r\n", secure)
		for _, c := range []struct {
			request string
			status  int
		}{
			{"POST /v1/locks/mine?ttl=1m&wait=1m", 200}, {"POST /v1/locks/mine?ttl=1m", 200},
			{"POST /v1/locks/x?ttl=1m&wait=1m", 202}, // it cannot be told from one that has gone
			{"POST /v1/session/keepalive?holding=mine", 200}, {"GET /v1/locks/mine", 200}, {"DELETE /v1/session", 200},
		} {
			conn, r := open(secure, c.request)
			if _, err := io.WriteString(conn, session); err != nil {
				t.Fatal(err)
			}
			_ = conn.(interface{ CloseWrite() error }).CloseWrite()
			if resp, err := http.ReadResponse(r, nil); err != nil {
				t.Errorf("%s, TLS %t: %v", c.request, secure, err)
			} else if resp.StatusCode != c.status {
				t.Errorf("%s, TLS %t: answered %d", c.request, secure, resp.StatusCode)
			}
		}
		f.ask("DELETE", "/v1/session", fmt.Sprint("first-holder-", secure), "").wants(200)
		for range 5 {
			conn, r := open(secure, "POST /v1/locks/x?ttl=1m&wait=1m")
			if _, err := io.WriteString(conn, "Accept: text/event-stream\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			e := &events{t: t, lines: bufio.NewScanner(resp.Body)}
			e.wants("acquired")
			granted := f.begin("POST", "/v1/locks/x?ttl=1m&wait=1m", fmt.Sprint("waits-", rand.Uint64()), "")
			f.awaitWaiters("x", 1)
			_ = conn.(interface{ CloseWrite() error }).CloseWrite()
			a := (<-granted).wants(200)
			if rest, err := arrived(conn); err != nil || !secure && !strings.Contains(rest, "event: lost") {
				t.Errorf("another session has the lock, and the stream has only %q, %v", rest, err)
			}
			f.ask("DELETE", fmt.Sprintf("/v1/locks/x?token=%d", a.number("token")), sessionOf(t, f.site, a), "").wants(200)
		}
	}
}

// arrived is what has come to a connection up to its end; an error: the end has not come.
func arrived(conn net.Conn) (text string, err error) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return "", err
	}
	var end error
	err = raw.Read(func(fd uintptr) bool {
		for b := make([]byte, 4<<10); ; {
			n, err := syscall.Read(int(fd), b)
			if n <= 0 {
				end = err
				return true
			}
			text += string(b[:n])
		}
	})
	return text, cmp.Or(err, end)
}

// sessionOf is the name of the session that an answer is about.
func sessionOf(t *testing.T, s *site, a *answer) string {
	for _, x := range s.sessions() {
		if idText(x.native.ID()) == a.doc["session_id"] {
			return x.name
		}
	}
	t.Fatalf("no session has %s", a.body)
	return ""
}

// TestNothingIsKept: of a name that was refused, released or given up nothing is kept.
func TestNothingIsKept(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	s := openSite(t, srv)
	s.ask("POST", "/v1/locks/held?ttl=10m", bob, "").wants(200)
	s.ask("POST", "/v1/locks/mine?ttl=10m", alice, "").wants(200)
	for i := range 20 {
		body := strings.Repeat("x", 1<<10)
		s.ask("POST", fmt.Sprintf("/v1/locks/none-%d?count=1", i), alice, body).wants(404, "not_found")
		s.ask("POST", "/v1/locks/held", alice, body).wants(409, "not_acquired")
		s.ask("DELETE", fmt.Sprintf("/v1/locks/unknown-%d", i), alice, "").wants(200)
		s.ask("DELETE", fmt.Sprintf("/v1/locks/unknown-%d?token=7", i), alice, "").wants(200)
		s.ask("POST", fmt.Sprintf("/v1/locks/free-%d", i), alice, body).wants(200)
		s.ask("DELETE", fmt.Sprintf("/v1/locks/free-%d", i), alice, "").wants(200)
		s.ask("POST", "/v1/locks/held?wait=1ms", alice, body).wants(202)
		s.ask("DELETE", "/v1/locks/held", alice, "").wants(200)
	}
	x := s.sessionsOf(alice)[0]
	x.step(func(m *machine.Session, _ time.Duration) {
		var kept []string
		for i := range 20 {
			for _, name := range []string{"held", "none-%d", "unknown-%d", "free-%d"} {
				if name = strings.Replace(name, "%d", fmt.Sprint(i), 1); m.Knows(name) {
					kept = append(kept, name)
				}
			}
		}
		if len(kept) > 0 || !m.Knows("mine") || len(x.ops) > 0 || len(x.replies) > 0 {
			t.Errorf("kept are the names %q, %d operations and %d requests", kept, len(x.ops), len(x.replies))
		}
	})
}
