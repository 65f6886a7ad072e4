package console

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/pagesize"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	pagesize.Two()
	goleak.VerifyTestMain(m, // gnet's pool of goroutines lives as long as the program
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
}

// site is a console with its cluster, as a browser sees it.
type site struct {
	t       testing.TB
	server  *servertest.Server
	console *Console
	url     string
	browser *http.Client
	sdk     *client.Client // of a program beside the console
}

func openSite(t testing.TB, change func(*Config), opts ...servertest.Option) *site {
	t.Helper()
	opts = append([]servertest.Option{servertest.Shards(2)}, opts...)
	s := &site{t: t, server: servertest.Start(t, opts...)}
	s.serve(change, s.server.Addr())
	return s
}

// serve starts a console of a cluster.
func (s *site) serve(change func(*Config), endpoints ...string) {
	s.t.Helper()
	cfg := Config{Client: client.Config{Endpoints: endpoints}, Refresh: minRefresh}
	if change != nil {
		change(&cfg)
	}
	var err error
	if s.console, err = New(cfg); err != nil {
		s.t.Fatal(err)
	}
	web := httptest.NewUnstartedServer(nil)
	web.Config = Server(s.console, s.console.cfg.Log)
	web.Listener = LimitListener(web.Listener)
	if cfg.Secure {
		web.EnableHTTP2 = true
		web.StartTLS()
	} else {
		web.Start()
	}
	s.url = web.URL
	s.browser = newBrowser()
	s.t.Cleanup(func() {
		s.browser.CloseIdleConnections()
		s.console.Close()
		web.Close()
	})
}

func newBrowser() *http.Client {
	jar, _ := cookiejar.New(nil)
	insecure := &tls.Config{InsecureSkipVerify: true} // the certificate is the test's own
	return &http.Client{
		Jar: jar, Transport: &http.Transport{TLSClientConfig: insecure, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// program is a client of the cluster that no console has to do with.
func (s *site) program() *client.Client {
	s.t.Helper()
	if s.sdk == nil {
		var err error
		if s.sdk, err = client.Dial(s.t.Context(), s.server.Addr()); err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(s.sdk.CloseWithoutRelease)
	}
	return s.sdk
}

func (s *site) session(opts ...client.SessionOption) *client.Session {
	s.t.Helper()
	x, err := s.program().Session(s.t.Context(), "/default", opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	return x
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (s *site) do(r *http.Request) answer {
	s.t.Helper()
	resp, err := s.browser.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

func (s *site) get(path string, change ...func(*http.Request)) answer {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range change {
		f(r)
	}
	return s.do(r)
}

// post sends a form as a page of the console would.
func (s *site) post(path string, form url.Values, change ...func(*http.Request)) answer {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", s.url)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for _, f := range change {
		f(r)
	}
	return s.do(r)
}

func (a answer) wants(t testing.TB, status int, texts ...string) {
	t.Helper()
	if a.status != status {
		t.Errorf("answered %d, want %d: %.300s", a.status, status, a.body)
	}
	for _, text := range texts {
		if !strings.Contains(a.body, text) {
			t.Errorf("no %q in the page:\n%s", text, a.body)
		}
	}
}

// next is the address of the next page of a table; empty: this is the last one.
func (a answer) next(table string) string {
	_, rest, _ := strings.Cut(a.body, `data-next="`+table+`" rel="next" href="`)
	path, _, _ := strings.Cut(rest, `"`)
	return strings.ReplaceAll(path, "&amp;", "&")
}

// tab is an open stream.
type tab struct {
	t      testing.TB
	resp   *http.Response
	events chan event
	cancel context.CancelFunc
}

type event struct {
	name string
	data []byte
}

func (s *site) open(path string) *tab {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/live"+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := s.browser.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	x := &tab{t: s.t, resp: resp, events: make(chan event, 100), cancel: cancel}
	s.t.Cleanup(x.close)
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		close(x.events)
		s.t.Fatalf("stream is answered %d: %s", resp.StatusCode, b)
	}
	go func() {
		defer close(x.events)
		lines := bufio.NewReader(resp.Body)
		name := ""
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			line = bytes.TrimSuffix(line, []byte("\n"))
			if v, ok := bytes.CutPrefix(line, []byte("event: ")); ok {
				name = string(v)
			}
			if v, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
				x.events <- event{name, bytes.Clone(v)}
			}
		}
	}()
	return x
}

func (x *tab) close() {
	x.cancel()
	_ = x.resp.Body.Close()
	for range x.events {
	}
}

// until waits for an event that ok accepts.
func (x *tab) until(what string, ok func(name string, u update) bool) {
	x.t.Helper()
	limit := time.After(time.Minute)
	for {
		select {
		case e, open := <-x.events:
			if !open {
				x.t.Fatalf("the stream ended before %s", what)
			}
			var u update
			if err := json.Unmarshal(e.data, &u); err != nil {
				x.t.Fatalf("%s %s: %v", e.name, e.data, err)
			}
			if ok(e.name, u) {
				return
			}
		case <-limit:
			x.t.Fatalf("%s did not come", what)
		}
	}
}

// denied wants the stream to say this, and nothing else.
func (x *tab) denied(text string) {
	x.t.Helper()
	e := <-x.events
	var last said
	if err := json.Unmarshal(e.data, &last); err != nil || e.name != "denied" || last.Text != text {
		x.t.Errorf("the stream says %s %s, want that it is denied: %q", e.name, e.data, text)
	}
	if e, more := <-x.events; more {
		x.t.Errorf("the stream goes on with %s %s", e.name, e.data)
	}
}

// keysOf are the keys of a table's rows, if the update has the table.
func keysOf(u update, table string) (keys []string, ok bool) {
	for _, t := range u.Tables {
		if t.ID == table {
			return t.Order, true
		}
	}
	return nil, false
}
