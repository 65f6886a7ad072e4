package httpapi

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// clientFaults are the cases of a client that is used by many at once, that meets what is no gateway,
// whose gateways are away, and whose callers give up.
var clientFaults = []clientCase{
	{"the callers of one process exclude each other, and those of another one", false, func(
		t *testing.T, d *driven, _ *servertest.Server, s *site, one, two *wire,
	) {
		other := drive(t, d.language)
		other.mine = d.mine
		other.do(command{"do": "connect", "as": "a", "addresses": []string{two.url(), one.url()}})
		var spans [][3]int64
		many, rounds := sized(15, 50, 50), 3
		var answers []<-chan said
		for _, p := range []*driven{d, other} {
			answers = append(answers, p.start(command{"do": "crowd", "with": "a", "name": "jobs", "many": many, "rounds": rounds,
				"ttl": 120_000, "wait": 300_000})) // a release may take as long as the ttl, and a sixth of it for each try
		}
		for _, ch := range answers {
			a := <-ch
			if a.Least != rounds || len(a.Errors) > 0 || a.Error != "" {
				t.Errorf("a caller was served %d times of %d; %v %s", a.Least, rounds, a.Errors, a.Error)
			}
			spans = append(spans, a.Spans...)
		}
		slices.SortFunc(spans, func(a, b [3]int64) int { return cmp.Compare(a[0], b[0]) })
		for i := 1; i < len(spans); i++ {
			if was, is := spans[i-1], spans[i]; was[0] == is[0] || was[2] > is[1] {
				t.Errorf("two at once: tokens %d and %d", was[0], is[0])
			}
		}
		if len(spans) != 2*many*rounds {
			t.Errorf("it was held %d times, want %d", len(spans), 2*many*rounds)
		}
		until(t, "nothing is held", func() bool { owners, waiters := d.owners(s, "jobs"); return owners+waiters == 0 })
	}},
	{"what is locked twice through one connection waits for itself", false, func(
		t *testing.T, d *driven, _ *servertest.Server, s *site, _, _ *wire,
	) {
		d.do(command{"do": "lock", "with": "a", "as": "x", "name": "jobs"})
		d.refused(command{"do": "lock", "with": "a", "as": "y", "name": "jobs"})
		if a := d.refused(command{"do": "lock", "with": "a", "as": "y", "name": "jobs", "wait": 100}); !a.InTime {
			t.Errorf("after a wait the second one is %+v", a)
		}
		if a := d.do(command{"do": "held", "lease": "x"}); !a.Held {
			t.Errorf("the first one is %+v", a)
		}
		until(t, "one holds, and none waits", func() bool { owners, waiters := d.owners(s, "jobs"); return owners == 1 && waiters == 0 })
	}},
	{"what is no answer of a gateway is none, and the next one is asked", false, func(
		t *testing.T, d *driven, _ *servertest.Server, s *site, _, two *wire,
	) {
		liars := make(map[string]*liar)
		for what := range lies {
			l := newLiar(t, s)
			liars[what] = l
			d.do(command{"do": "connect", "as": what, "addresses": []string{l.url, l.url}, "timeout": 300})
			d.do(command{"do": "connect", "as": "alone " + what, "addresses": []string{l.url}})
			d.do(command{"do": "connect", "as": "both " + what, "addresses": []string{l.url, two.url()}})
		}
		// each does a command for every lie at once
		each := func(c command, wants func(a said) bool) {
			t.Helper()
			answers := make(map[string]<-chan said)
			for what := range lies {
				mine := command{}
				for key, value := range c {
					if text, ok := value.(string); ok {
						value = strings.ReplaceAll(text, "LIE", what)
					}
					mine[key] = value
				}
				answers[what] = d.start(mine)
			}
			for what, ch := range answers {
				if a := <-ch; !wants(a) {
					t.Errorf("%s: %v is %+v", what, c["do"], a)
				}
			}
		}
		unavailable := func(a said) bool { return a.Error == "Unavailable" && a.Detail != "" }
		done := func(a said) bool { return a.Error == "" }
		each(command{"do": "lock", "with": "both LIE", "as": "kept LIE", "name": "kept LIE", "ttl": 300_000, "wait": 60_000},
			func(a said) bool { return a.Held })
		each(command{"do": "lock", "with": "alone LIE", "as": "lost LIE", "name": "lost LIE", "ttl": 4000, "wait": 60_000}, done)
		for what, f := range lies {
			liars[what].lie(f)
		}
		each(command{"do": "lock", "with": "LIE", "as": "LIE", "name": "LIE"}, unavailable)
		each(command{"do": "get", "with": "LIE", "name": "LIE"}, unavailable)
		each(command{"do": "set", "with": "LIE", "name": "LIE", "data": "x"}, unavailable)
		each(command{"do": "take", "with": "LIE", "name": "LIE", "units": 1}, unavailable)
		each(command{"do": "members", "with": "LIE", "name": "LIE"}, unavailable)
		each(command{"do": "lock", "with": "both LIE", "as": "LIE", "name": "both LIE", "wait": 60_000}, func(a said) bool { return a.Held })
		each(command{"do": "release", "lease": "LIE"}, done)
		for what := range lies {
			if owners, _ := d.owners(s, url.PathEscape("both "+what)); owners != 0 {
				t.Errorf("%s: its release was answered, and it is held", what)
			}
		}
		// None of them renews a lease, and none ends what looks after it.
		each(command{"do": "lost", "lease": "lost LIE", "wait": 150_000},
			func(a said) bool { return a.Lost && !a.Held && a.Cause == "LeaseLost" })
		each(command{"do": "release", "lease": "kept LIE"}, done)
	}},
	{"redirects are not followed", false, func(t *testing.T, d *driven, _ *servertest.Server, s *site, _, _ *wire) {
		var answers []<-chan said
		for _, status := range []int{301, 302, 303, 307, 308} {
			l, as := newLiar(t, s), fmt.Sprint(status)
			l.lie(func(w http.ResponseWriter, r *http.Request) bool {
				http.Redirect(w, r, s.url+r.URL.RequestURI(), status)
				return true
			})
			d.do(command{"do": "connect", "as": as, "addresses": []string{l.url}, "timeout": 300})
			answers = append(answers, d.start(command{"do": "lock", "with": as, "as": as, "name": as}))
		}
		for _, ch := range answers {
			if a := <-ch; a.Error != "Unavailable" {
				t.Errorf("it is %+v", a)
			}
		}
	}},
	{"errors of a proxy pass", false, func(t *testing.T, d *driven, _ *servertest.Server, s *site, _, _ *wire) {
		l := newLiar(t, s)
		d.do(command{"do": "connect", "as": "l", "addresses": []string{l.url}})
		for _, status := range []int{500, 502, 503, 504} {
			var times atomic.Int64
			l.lie(func(w http.ResponseWriter, r *http.Request) bool {
				return times.Add(1) <= 3 && says(status, "text/html", "<html></html>")(w, r)
			})
			name := fmt.Sprint(status)
			if a := d.do(command{"do": "lock", "with": "l", "as": name, "name": name, "wait": 60_000}); !a.Held {
				t.Errorf("after %d three times, the lock is %+v", status, a)
			}
			times.Store(0)
			if a := d.do(command{"do": "release", "lease": name}); a.Error != "" {
				t.Errorf("after %d three times, the release is %+v", status, a)
			}
			if owners, _ := d.owners(s, name); owners != 0 {
				t.Errorf("after %d, and a release that returned, it is held", status)
			}
		}
	}},
	{"a lock is lost in time while the release of another one hangs", false, func(
		t *testing.T, d *driven, _ *servertest.Server, s *site, one, _ *wire,
	) {
		d.do(command{"do": "connect", "as": "n", "addresses": []string{one.url()}})
		for _, name := range []string{"x", "y"} {
			d.lock("n", name, name, 4000)
		}
		one.stopped.Store(true)
		releasing := d.start(command{"do": "release", "lease": "y"})
		lost := d.start(command{"do": "lost", "lease": "x", "wait": 150_000})
		s.until("token", "POST", "/v1/locks/"+d.mine+"x?ttl=60s&wait=2m", "the-next-one-of-x").wants(200)
		select {
		case a := <-lost:
			if !a.Lost || a.Held || a.Cause != "LeaseLost" {
				t.Errorf("it is %+v", a)
			}
		default:
			t.Error("somebody else holds it, and lost is not set")
		}
		if a := <-releasing; a.Error != "Unavailable" {
			t.Errorf("the release that was not answered is %+v", a)
		}
	}},
	{"an answer that was long under way is believed for less", false, func(
		t *testing.T, d *driven, _ *servertest.Server, s *site, _, _ *wire,
	) {
		l := newLiar(t, s)
		l.lie(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasPrefix(r.URL.Path, "/v1/locks/") {
				<-r.Context().Done() // nothing renews it
				panic(http.ErrAbortHandler)
			}
			// The gateway keeps it for 5 s from its answer on, and so for less than 3 s from when that is read.
			a := s.ask(r.Method, r.URL.RequestURI(), r.Header.Get("Signalbox-Session"), "")
			time.Sleep(2200 * time.Millisecond)
			return says(a.status, a.header.Get("Content-Type"), string(a.body))(w, r)
		})
		d.do(command{"do": "connect", "as": "n", "addresses": []string{l.url}, "timeout": 60_000})
		if a := d.do(command{"do": "lock", "with": "n", "as": "x", "name": "jobs", "ttl": 4000, "wait": 60_000}); a.Error != "" {
			t.Fatalf("%+v", a)
		}
		lost := d.start(command{"do": "lost", "lease": "x", "wait": 150_000})
		s.until("token", "POST", "/v1/locks/"+d.mine+"jobs?ttl=60s&wait=2m", "the-next-one-of-jobs").wants(200)
		select {
		case a := <-lost:
			if !a.Lost || a.Held || a.Cause != "LeaseLost" {
				t.Errorf("it is %+v", a)
			}
		default:
			t.Error("somebody else holds it, and lost is not set")
		}
	}},
	{"a release without a gateway fails, and goes on", false, func(
		t *testing.T, d *driven, _ *servertest.Server, s *site, one, _ *wire,
	) {
		d.do(command{"do": "connect", "as": "n", "addresses": []string{one.url()}, "timeout": 3000})
		d.lock("n", "x", "jobs", 300_000)
		one.away.Store(true)
		one.cut()
		if a := d.do(command{"do": "release", "lease": "x"}); a.Error != "Unavailable" || !a.Caused {
			t.Errorf("the release is %+v", a)
		}
		if a := d.do(command{"do": "held", "lease": "x"}); a.Held || a.Lost {
			t.Errorf("after its release it is %+v", a)
		}
		if owners, _ := d.owners(s, "jobs"); owners != 1 {
			t.Fatalf("%d hold it", owners)
		}
		one.away.Store(false)
		until(t, "it is released", func() bool { owners, _ := d.owners(s, "jobs"); return owners == 0 })
	}},
	{"a wait that is given up leaves its place", false, func(t *testing.T, d *driven, _ *servertest.Server, s *site, one, _ *wire) {
		s.ask("POST", "/v1/locks/"+d.mine+"jobs?ttl=5m", "the-holder-of-it", "").wants(200)
		d.do(command{"do": "connect", "as": "n", "addresses": []string{one.url()}})
		waiting := d.start(command{"do": "lock", "with": "n", "as": "x", "name": "jobs", "wait": 150_000, "ttl": 300_000})
		until(t, "it waits", func() bool { _, waiters := d.owners(s, "jobs"); return waiters == 1 })
		d.do(command{"do": "cancel", "lease": "x"})
		if a := <-waiting; a.Error != "Cancelled" {
			t.Errorf("it is %+v", a)
		}
		until(t, "nobody waits", func() bool { _, waiters := d.owners(s, "jobs"); return waiters == 0 })
	}},
	{"what is granted to a wait that is given up is given back", false, func(
		t *testing.T, d *driven, _ *servertest.Server, s *site, one, _ *wire,
	) {
		d.do(command{"do": "connect", "as": "n", "addresses": []string{one.url()}})
		for _, wait := range []int{0, 150_000} {
			one.mute.Store(true)
			waiting := d.start(command{"do": "lock", "with": "n", "as": "x", "name": "jobs", "wait": wait, "ttl": 300_000})
			until(t, "it is granted", func() bool { owners, _ := d.owners(s, "jobs"); return owners == 1 })
			d.do(command{"do": "cancel", "lease": "x"})
			if a := <-waiting; a.Error != "Cancelled" {
				t.Errorf("it is %+v", a)
			}
			one.mute.Store(false)
			until(t, "it is given back", func() bool { owners, _ := d.owners(s, "jobs"); return owners == 0 })
		}
	}},
	{"without a gateway a lock fails in its time, and a close at once", false, func(
		t *testing.T, d *driven, _ *servertest.Server, _ *site, one, two *wire,
	) {
		d.do(command{"do": "connect", "as": "n", "addresses": []string{one.url()}, "timeout": 60_000})
		d.lock("n", "x", "held", 60_000)
		d.do(command{"do": "connect", "as": "m", "addresses": []string{two.url()}, "timeout": 300})
		one.stopped.Store(true)
		two.away.Store(true)
		if a := d.do(command{"do": "lock", "with": "m", "as": "y", "name": "jobs"}); a.Error != "Unavailable" || !a.Caused {
			t.Errorf("it is %+v", a)
		}
		// It says that a lock is not given back, long before a request would be over.
		if a := d.do(command{"do": "close", "with": "n"}); a.Error != "Unavailable" {
			t.Errorf("the close is %+v", a)
		}
		if a := d.do(command{"do": "held", "lease": "x"}); a.Held {
			t.Errorf("after the close it is %+v", a)
		}
	}},
	{"a close ends waits, and leaves nothing", false, func(t *testing.T, d *driven, _ *servertest.Server, s *site, _, _ *wire) {
		s.ask("POST", "/v1/locks/"+d.mine+"jobs?ttl=5m", "the-holder-of-it", "").wants(200)
		d.do(command{"do": "lock", "with": "a", "as": "x", "name": "other"})
		waiting := d.start(command{"do": "lock", "with": "a", "as": "y", "name": "jobs", "wait": 150_000})
		until(t, "it waits", func() bool { _, waiters := d.owners(s, "jobs"); return waiters == 1 })
		closes := time.Now()
		if a := d.do(command{"do": "close", "with": "a"}); a.Error != "" &&
			(a.Error != "Unavailable" || time.Since(closes) < 900*time.Millisecond) { // else no gateway has answered for that long
			t.Errorf("the close is %+v", a)
		}
		if a := <-waiting; a.Error != "Cancelled" {
			t.Errorf("the wait is %+v", a)
		}
		until(t, "nothing is held, and nobody waits", func() bool {
			owners, _ := d.owners(s, "other")
			_, waiters := d.owners(s, "jobs")
			return owners+waiters == 0
		})
		d.do(command{"do": "close", "with": "b"})
		var left []string
		until(t, "nothing is left", func() bool { left = d.do(command{"do": "left"}).Lines; return len(left) == 0 })
	}},
	{"a watch lives through weak tags, errors of proxies and an outage", false, func(
		t *testing.T, d *driven, _ *servertest.Server, s *site, _, _ *wire,
	) {
		l := newLiar(t, s)
		d.do(command{"do": "connect", "as": "l", "addresses": []string{l.url}})
		l.server.Handler = weakTags(l.server.Handler)
		set := func(data string) { s.ask("PUT", "/v1/config/"+d.mine+"flags", "", data).wants(200) }
		set("first")
		seen := d.start(command{"do": "watch", "with": "l", "name": "flags", "until": "last"})
		next := func(want string) {
			t.Helper()
			if a := <-seen; a.Data != want || a.Error != "" {
				t.Fatalf("it saw %+v, want %q", a, want)
			}
		}
		next("first")
		for i, lie := range []func(http.ResponseWriter, *http.Request) bool{
			says(504, "text/html", "<html></html>"), says(502, "text/html", "<html></html>"), lies["a login page"],
			lies["a connection that breaks"], lies["half an answer"],
		} {
			before := l.asked.Load()
			l.lie(lie)
			until(t, "it is asked again", func() bool { return l.asked.Load() >= before+3 })
			set(fmt.Sprint(i))
			l.lie(func(http.ResponseWriter, *http.Request) bool { return false })
			next(fmt.Sprint(i))
		}
		if a := d.do(command{"do": "get", "with": "l", "name": "flags"}); a.Data != "4" || a.Version == 0 {
			t.Errorf("with a weak tag, it reads %+v", a)
		}
		set("last")
		next("last")
	}},
	{"a lease of a session that was given is one at a time", false, func(
		t *testing.T, d *driven, _ *servertest.Server, s *site, one, two *wire,
	) {
		session := "given-" + d.mine + d.language
		d.do(command{"do": "connect", "as": "n", "addresses": []string{one.url(), two.url()}, "session": session})
		d.do(command{"do": "connect", "as": "m", "addresses": []string{two.url()}, "session": session})
		s.ask("POST", "/v1/locks/"+d.mine+"taken?ttl=5m", "the-holder-of-"+d.mine, "").wants(200)
		// With a short ttl a busy machine might end the session, whose name is then refused for long.
		waiting := d.start(command{"do": "lock", "with": "n", "as": "w", "name": "taken", "wait": 150_000, "ttl": 120_000})
		until(t, "it waits", func() bool { _, waiters := d.owners(s, "taken"); return waiters == 1 })
		for _, as := range []string{"n", "m"} {
			if a := d.do(command{"do": "lock", "with": as, "as": "y", "name": "jobs"}); a.Error == "" || !strings.Contains(a.Detail, "one lock at a time") {
				t.Errorf("while one is under way, the second one is %+v", a)
			}
		}
		d.do(command{"do": "cancel", "lease": "w"})
		<-waiting
		first := said{}
		defer func() {
			if t.Failed() {
				t.Logf("the last lock of the given session: %+v", first)
			}
		}()
		until(t, "the session is free", func() bool {
			first = d.do(command{"do": "lock", "with": "n", "as": "x", "name": "jobs", "ttl": 120_000})
			return first.Held
		})
		for _, name := range []string{"jobs", "other"} {
			if a := d.do(command{"do": "lock", "with": "n", "as": "y", "name": name}); a.Error == "" {
				t.Errorf("while one is held, the second one is %+v", a)
			}
		}
		if owners, _ := d.owners(s, "jobs"); owners != 1 {
			t.Errorf("a second lock, which was refused, leaves the first one with %d owners", owners)
		}
		if a := d.do(command{"do": "release", "lease": "x"}); a.Error != "" {
			t.Errorf("its release is %+v", a)
		}
		// The session goes on, and the next lease of it has a token of its own.
		again := d.do(command{"do": "lock", "with": "m", "as": "z", "name": "jobs", "ttl": 120_000})
		if again.Token <= first.Token || !again.Held {
			t.Errorf("after %+v the next one is %+v", first, again)
		}
		d.do(command{"do": "release", "lease": "z"})
	}},
	{"names of all kinds", false, func(t *testing.T, d *driven, _ *servertest.Server, s *site, _, _ *wire) {
		l := newLiar(t, s)
		d.do(command{"do": "connect", "as": "l", "addresses": []string{l.url}})
		for _, name := range []string{"/jobs/a", "a/", ".", "..", "a//b", "http://host/x?y=z#f", "a%2Fb", "a b+c", "a;b=c", `a\b`,
			"\xff\x00\xfe", "日本", "a\nb", "$x"} {
			name = d.mine + name
			if strings.HasSuffix(name, ".") {
				name = strings.TrimPrefix(name, d.mine)
			}
			a := d.do(command{"do": "lock", "with": "l", "as": "x", "hex": fmt.Sprintf("%x", name)})
			if !a.Held {
				t.Errorf("%q is %+v", name, a)
				continue
			}
			path := "/v1/locks/?name64=" + base64.URLEncoding.EncodeToString([]byte(name))
			if got := s.ask("GET", path, "", "").wants(200); got.doc["exists"] != true {
				t.Errorf("%q is %s", name, got.body)
			}
			if a := d.do(command{"do": "release", "lease": "x"}); a.Error != "" {
				t.Errorf("%q: its release is %+v", name, a)
			}
		}
		if a := d.do(command{"do": "connect", "as": "n", "addresses": []string{"localhost:7074"}}); !strings.Contains(a.Detail, "http://localhost:7074") {
			t.Errorf("an address without a scheme is %+v", a)
		}
	}},
	{"units are not taken twice by themselves", false, func(t *testing.T, d *driven, srv *servertest.Server, s *site, _, _ *wire) {
		own, err := client.OpenSession(t.Context(), client.Config{Endpoints: []string{srv.Addr()}}, client.DefaultNode)
		if err != nil {
			t.Fatal(err)
		}
		defer own.Client().CloseWithoutRelease()
		limit := ratelimit.Config{Rate: ratelimit.PerSecond(1000)}
		if _, err := ratelimit.Create(t.Context(), own, d.mine+"api", limit); err != nil {
			t.Fatal(err)
		}
		l := newLiar(t, s)
		d.do(command{"do": "connect", "as": "l", "addresses": []string{l.url}})
		until(t, "there are units", func() bool { return d.do(command{"do": "take", "with": "l", "name": "api", "units": 1}).Held })
		for again, want := range map[bool]int64{false: 1, true: 3} {
			before := l.asked.Load()
			l.lie(func(http.ResponseWriter, *http.Request) bool {
				if l.asked.Load() < before+3 {
					panic(http.ErrAbortHandler)
				}
				return false
			})
			a := d.do(command{"do": "take", "with": "l", "name": "api", "units": 1, "retry": again})
			if again && a.Error == "" { // there may be no units now
				a.Held = true
			}
			if a.Held != again || (a.Error == "Unavailable") == again || l.asked.Load() != before+want {
				t.Errorf("retry %v: %+v, after %d requests", again, a, l.asked.Load()-before)
			}
		}
	}},
	{"many leases are renewed over a slow network", true, func(t *testing.T, d *driven, _ *servertest.Server, s *site, one, _ *wire) {
		one.late.Store(20)
		d.do(command{"do": "connect", "as": "n", "addresses": []string{one.url()}})
		const many = 1000
		var all []<-chan said
		for i := range many {
			all = append(all, d.start(command{"do": "lock", "with": "n", "as": fmt.Sprint(i), "name": fmt.Sprint(i), "ttl": 30_000, "wait": 60_000}))
			if i%50 == 49 {
				<-all[i]
			}
		}
		first := d.start(command{"do": "lost", "lease": "0", "wait": 70_000})
		if a := <-first; a.Lost {
			t.Errorf("the first one is %+v", a)
		}
		for i := range many {
			if a := d.do(command{"do": "held", "lease": fmt.Sprint(i)}); !a.Held {
				t.Errorf("%d is %+v", i, a)
			}
		}
	}},
}

// weakTags is a proxy that compresses: it makes tags weak.
func weakTags(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(weakWriter{w}, r) })
}

type weakWriter struct{ http.ResponseWriter }

func (w weakWriter) WriteHeader(status int) {
	if tag := w.Header().Get("ETag"); tag != "" {
		w.Header().Set("ETag", "W/"+tag)
	}
	w.ResponseWriter.WriteHeader(status)
}
