package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/server/servertest/pagesize"
)

func TestMain(m *testing.M) {
	if endpoints := os.Getenv(gatewayOf); endpoints != "" {
		runGateway(endpoints)
		return
	}
	pagesize.Two()
	flag.Parse()
	if given := flag.Lookup("test.parallel"); given.Value.String() == given.DefValue {
		_ = flag.Set("test.parallel", "16") // they wait, mostly
	}
	goleak.VerifyTestMain(allTests{m}, goleak.IgnoreCurrent())
}

// allTests are the tests of the package.
type allTests struct{ *testing.M }

// Run also fails if some answer is described that no test has had.
func (m allTests) Run() int {
	status := m.M.Run()
	if part := flag.Lookup("test.run").Value.String() + flag.Lookup("test.skip").Value.String() + flag.Lookup("test.fuzz").Value.String() +
		flag.Lookup("test.list").Value.String(); part == "" && status == 0 {
		for _, key := range unseen() {
			fmt.Printf("the answer %s is described, and no test has had it\n", key)
			status = 1
		}
	}
	return status
}

// patience bounds waits of tests that must end; nothing is timed by it.
const patience = 3 * time.Minute

// sized returns the size of a test in the ordinary form, in full, or in a longer one.
func sized[T any](test, full, long T) T {
	switch {
	case form.Is(form.Long):
		return long
	case form.Is(form.Full):
		return full
	}
	return test
}

// site is a gateway of a cluster.
type site struct {
	t      *testing.T
	api    *API
	server *http.Server
	url    string
	web    *http.Client
}

func openSite(t *testing.T, srv *servertest.Server, change ...func(*Config)) *site {
	t.Helper()
	cfg := Config{Client: client.Config{Endpoints: []string{srv.Addr()}}, Log: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&cfg)
	}
	api, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	transport := new(http.Transport)
	s := &site{t: t, api: api, url: "http://" + l.Addr().String(), web: &http.Client{Transport: transport}}
	server := s.serve()
	s.server = server
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(LimitListener(l)) }()
	closed := s.opened()
	t.Cleanup(func() {
		s.checkEnd(srv.Running())
		if srv.Running() {
			s.checkServer(srv.Addr())
		}
		closed()
		api.Close()
		_ = server.Close()
		<-served
		transport.CloseIdleConnections()
		await.True(t, "a closed gateway without sessions", func() bool {
			return !slices.ContainsFunc(s.sessions(), func(x *session) bool { return x != noSession })
		})
	})
	return s
}

// answer is what came back.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	body   []byte
	doc    document
}

// ask sends a request of a session; header lines follow.
// What a busy machine has not done for seconds is asked for again, as the page says.
func (s *site) ask(method, path, session, body string, header ...string) *answer {
	s.t.Helper()
	for end := time.Now().Add(patience); ; {
		sent := time.Now()
		a, err := s.try(s.t.Context(), method, path, session, body, header...)
		if err != nil {
			s.t.Fatal(err)
		}
		late := a.doc["code"] == "unavailable" || a.doc["code"] == "outcome_unknown"
		if !late || time.Since(sent) < readyTimeout || time.Now().After(end) {
			return a
		}
	}
}

// begin sends a request. Without an answer the status is 0 and the error is the body: nobody may wait
// for it any more.
func (s *site) begin(method, path, session, body string, header ...string) <-chan *answer {
	got := make(chan *answer, 1)
	go func() {
		a, err := s.try(s.t.Context(), method, path, session, body, header...)
		if err != nil {
			a = &answer{t: s.t, body: []byte(err.Error())}
		}
		got <- a
	}()
	return got
}

func (s *site) try(ctx context.Context, method, path, session, body string, header ...string) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if session != "" {
		req.Header.Set("Signalbox-Session", session)
	}
	for _, line := range header {
		key, value, _ := strings.Cut(line, ": ")
		if key == "Host" {
			req.Host = value
		} else {
			req.Header.Add(key, value)
		}
	}
	resp, err := s.web.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	a := &answer{t: s.t, status: resp.StatusCode, header: resp.Header}
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		return nil, err
	}
	if strings.Contains(resp.Header.Get("Content-Type"), "json") {
		d := json.NewDecoder(bytes.NewReader(a.body))
		d.UseNumber()
		if err := d.Decode(&a.doc); err != nil {
			return nil, err
		}
	}
	a.check(method, path)
	return a, nil
}

// repeat sends a request that others of its session send too, until its answer is neither that the
// session moved away nor that a newer repeat came. It comes again when the answer says: those that
// come again at once can take the session from each other for ever.
func (s *site) repeat(method, path, session, body string) (*answer, error) {
	return again(func() (*answer, error) { return s.try(s.t.Context(), method, path, session, body) }, func(a *answer) bool {
		if a.status < 500 && a.doc["code"] != "aborted" {
			return true
		}
		after, _ := strconv.Atoi(a.header.Get("Retry-After"))
		time.Sleep(time.Duration(after) * time.Second)
		return false
	})
}

// again asks until an answer will do. Without one in patience the error says the last one.
func again(ask func() (*answer, error), do func(a *answer) bool) (*answer, error) {
	for end := time.Now().Add(patience); ; {
		a, err := ask()
		if err != nil || do(a) {
			return a, err
		}
		if time.Now().After(end) {
			return a, fmt.Errorf("asked again and again for %v, and the last answer is %d %s", patience, a.status, a.body)
		}
	}
}

// answered says that a gateway did what it was asked for, or refused it: a busy machine made neither
// it nor the cluster late.
func (a *answer) answered() bool { return a.status < 500 }

// awaitWaiters waits until so many wait for a lock.
func (s *site) awaitWaiters(name string, n int, header ...string) {
	s.t.Helper()
	await.True(s.t, fmt.Sprintf("%d that wait for %s", n, name), func() bool {
		return s.ask("GET", "/v1/locks/"+name, "", "", header...).wants(200).number("num_waiters") == int64(n)
	})
}

// until sends a request until its answer has a field: who holds something is read in a second at
// most, or left out.
func (s *site) until(field, method, path, session string) *answer {
	s.t.Helper()
	a, err := again(func() (*answer, error) { return s.ask(method, path, session, ""), nil },
		func(a *answer) bool { return a.doc[field] != nil || a.status < 400 && a.status != 202 })
	if err != nil {
		s.t.Fatalf("%s %s, until it has %s: %v", method, path, field, err)
	}
	return a
}

// wants fails the test unless the answer has a status and, of a problem, a code.
func (a *answer) wants(status int, code ...string) *answer {
	a.t.Helper()
	if a.status != status || len(code) > 0 && a.doc["code"] != code[0] {
		a.t.Fatalf("answered %d, want %d %v: %s", a.status, status, code, a.body)
	}
	if len(code) > 0 && (a.doc["type"] != "urn:signalbox:error:"+code[0] || a.doc["detail"] == "" ||
		a.header.Get("Content-Type") != "application/problem+json") {
		a.t.Errorf("not a problem document: %s", a.body)
	}
	return a
}

func (a *answer) number(key string) int64 {
	a.t.Helper()
	text, ok := a.doc[key].(json.Number)
	n, err := text.Int64()
	if !ok || err != nil {
		a.t.Fatalf("%s of %s: %v", key, a.body, err)
	}
	return n
}
