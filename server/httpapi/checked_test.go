package httpapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

// checked is a gateway's handler that holds each answer, and each event of a stream, to what it says of
// time: how long it was at the gateway, how long it may be relied on, when a repeat helps, and what a
// condition and a wait ask for. After each answer it looks at the gateway's sessions.
type checked struct {
	http.Handler
	api     *API
	address string // of the cluster
	wrong   func(format string, args ...any)
}

// known is what earlier answers said of sessions, by cluster, node, credentials and name.
var known struct {
	sync.Mutex
	ttl    map[[4]string]time.Duration
	bounds map[[4]string]map[string]time.Time // of leases, by their name: they end then at the latest
}

// reply is an answer that is written.
type reply struct {
	http.ResponseWriter
	of     *checked
	r      *http.Request
	query  url.Values
	began  time.Time
	key    [4]string // of known
	own    bool      // the session, if there is one, is the stream's own
	status int
	body   []byte // of an answer, or of a stream what is no whole event yet
}

// serve is Server of a gateway, checked.
func (s *site) serve() *http.Server {
	server := Server(s.api, s.api.cfg.Log)
	server.Handler = &checked{server.Handler, s.api, s.api.cfg.Client.Endpoints[0], s.t.Errorf}
	return server
}

func (c *checked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := &reply{ResponseWriter: w, of: c, r: r, began: time.Now(), status: 200, query: r.URL.Query()}
	a.key = [4]string{c.address, cmp.Or(a.query.Get("node"), client.DefaultNode), r.Header.Get("Authorization"),
		r.Header.Get(sessionHeader)}
	if a.own = a.key[3] == ""; a.own { // a stream's session gets a name of its own
		a.key[3] = fmt.Sprintf("own %p", a)
	}
	name := r.Header.Get(sessionHeader)
	answered := c.api.count(a.key[1], name)
	c.Handler.ServeHTTP(a, r)
	answered()
	c.api.look(name, c.wrong)
	if !a.isStream() {
		a.check()
	}
}

func (a *reply) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *reply) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

func (a *reply) isStream() bool { return a.Header().Get("Content-Type") == eventStream }

func (a *reply) Write(b []byte) (int, error) {
	a.body = append(a.body, b...)
	for a.isStream() {
		text, rest, whole := bytes.Cut(a.body, []byte("\n\n"))
		if !whole {
			break
		}
		a.body = rest
		head, data, _ := strings.Cut(string(text), "\ndata: ")
		if event := strings.TrimPrefix(head, "event: "); event == "acquired" || event == "alive" {
			d := decoded([]byte(data))
			if d["waited_ms"] != nil || d["time"] == nil {
				a.wrong("an event %s is %s", event, data)
			}
			a.checkBelief(d, 0)
		}
	}
	return a.ResponseWriter.Write(b)
}

// wrong reports what is wrong with an answer.
func (a *reply) wrong(format string, args ...any) {
	a.of.wrong("%s %s is answered %d: "+format, append([]any{a.r.Method, a.r.URL, a.status}, args...)...)
}

// decoded is a document; empty: it is none.
func decoded(text []byte) (d document) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	_ = decoder.Decode(&d)
	return d
}

// milliseconds is a time of a document.
func milliseconds(d document, key string) (ms int64, ok bool) {
	text, ok := d[key].(json.Number)
	if !ok {
		return 0, false
	}
	ms, err := text.Int64()
	return ms, err == nil
}

func (a *reply) check() {
	took, d := time.Since(a.began), document(nil)
	if strings.Contains(a.Header().Get("Content-Type"), "json") && a.r.Method != http.MethodHead {
		d = decoded(a.body)
	}
	repeats := a.status == 503 || a.status == 504 || a.status == 429
	later, says := milliseconds(d, "retry_after_ms")
	switch after, err := strconv.ParseInt(a.Header().Get("Retry-After"), 10, 64); {
	case !repeats && a.Header().Get("Retry-After") == "":
	case !repeats, err != nil, (after == 0) != (d["code"] == "closing"), after > 5 && d["code"] != "limited",
		says && (later < 1 || after*1000 < later), d["code"] == "limited" && !says:
		a.wrong("Retry-After is %q of %s", a.Header().Get("Retry-After"), a.body)
	}
	if waited, ok := milliseconds(d, "waited_ms"); ok {
		if waited < 0 || waited > took.Milliseconds() {
			a.wrong("it waited for %d ms, and took %s", waited, took)
		}
		a.checkBelief(d, time.Duration(waited)*time.Millisecond)
	}
	wait, _ := time.ParseDuration(a.query.Get("wait"))
	if strings.Count(a.r.Header.Get("Authorization"), ".") == 2 {
		wait = 0 // its platform's token may expire before
	}
	if early := took < wait && a.r.Context().Err() == nil; early && (a.status == 202 || a.status == 304) {
		a.wrong("it may wait for %s, and took %s", wait, took)
	}
	if given := a.r.Header.Values("If-None-Match"); given != nil && a.r.Method == http.MethodGet && a.status < 400 {
		tag, list := a.Header().Get("ETag"), tags(given)
		has := isStar(list) || slices.ContainsFunc(list, func(t string) bool { return strings.TrimPrefix(t, "W/") == tag })
		if tag == "" || has != (a.status == 304) || a.status == 304 && len(a.body) > 0 {
			a.wrong("its ETag is %s, and %v is known", tag, given)
		}
	}
	a.forget(d)
}

// checkBelief holds what a document says of its session to what that was told before: its ttl, and the
// bounds of its leases. waited is how long after its request it was written, at the latest.
func (a *reply) checkBelief(d document, waited time.Duration) {
	left, ok := milliseconds(d, "expires_in_ms")
	if !ok {
		return
	}
	if left < 1 {
		a.wrong("it expires in %d ms", left)
	}
	known.Lock()
	defer known.Unlock()
	if known.ttl == nil {
		known.ttl, known.bounds = make(map[[4]string]time.Duration), make(map[[4]string]map[string]time.Time)
	}
	if ttl, err := time.ParseDuration(a.query.Get("ttl")); err == nil {
		known.ttl[a.key] = ttl
	}
	ttl, now := known.ttl[a.key], time.Now()
	if ms, ok := milliseconds(d, "ttl_ms"); ok {
		ttl = time.Duration(ms) * time.Millisecond
	}
	if a.own && ttl == 0 {
		ttl = streamTTL
	}
	if ttl != 0 && left > ttl.Milliseconds() {
		a.wrong("it expires in %d ms, and its ttl is %s", left, ttl)
	}
	name, _ := d["name"].(string)
	if d["state"] == "acquired" { // of requests and streams, and before this one the bound was another one
		delete(known.bounds[a.key], name)
		if ends, ok := milliseconds(d, "ends_in_ms"); ok {
			if left > ends {
				a.wrong("it expires in %d ms, and ends in %d ms", left, ends)
			}
			if known.bounds[a.key] == nil {
				known.bounds[a.key] = make(map[string]time.Time)
			}
			known.bounds[a.key][name] = now.Add(time.Duration(ends+1) * time.Millisecond)
		} else if a.query.Has("hold") {
			a.wrong("it has no bound")
		}
	}
	from := now
	if !a.isStream() {
		from = a.began.Add(waited)
	}
	for name, end := range known.bounds[a.key] {
		if until := from.Add(time.Duration(left) * time.Millisecond); until.After(end) && from.Before(end) {
			a.wrong("it may be relied on for %d ms, and %s ends in %s", left, name, end.Sub(from))
		}
	}
}

// forget forgets the bounds of leases that are held no more.
func (a *reply) forget(d document) {
	if a.r.Method != http.MethodDelete && a.status != http.StatusGone {
		return
	}
	known.Lock()
	defer known.Unlock()
	delete(known.bounds, a.key)
}
