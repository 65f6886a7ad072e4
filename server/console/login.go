package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/clienthost"
)

const (
	sessionIdle  = 30 * time.Minute
	sessionMost  = 12 * time.Hour
	maxSessions  = 1024
	maxTokenSize = 8 << 10 // of a platform
)

// session is one browser that is let in. It lives in memory only.
type session struct {
	viewer *viewer
	csrf   string // what the forms of this session carry
	began  time.Time
	used   time.Time // guarded by sessions.mu
}

// sessions are the sessions by the hash of their cookie, so that what is in memory lets nobody in.
type sessions struct {
	now     func() time.Time
	viewers *viewers

	mu     sync.Mutex
	byHash map[[sha256.Size]byte]*session
}

func newSessions(now func() time.Time, vs *viewers) *sessions {
	return &sessions{now: now, viewers: vs, byHash: make(map[[sha256.Size]byte]*session)}
}

// random is a secret of 256 bits as text.
func random() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // it never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// begin makes a session of a viewer, and returns its cookie's value; nil: the viewer's client was
// closed meanwhile. If there are too many sessions, the one that was used longest ago ends.
func (s *sessions) begin(v *viewer) (cookie string, begun *session) {
	cookie = random()
	now := s.now()
	begun = &session{viewer: v, csrf: random(), began: now, used: now}
	if !s.viewers.use(v) {
		return "", nil
	}
	s.expire()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.byHash) >= maxSessions {
		var oldest [sha256.Size]byte
		for hash, x := range s.byHash {
			if o := s.byHash[oldest]; o == nil || x.used.Before(o.used) {
				oldest = hash
			}
		}
		s.remove(oldest)
	}
	s.byHash[sha256.Sum256([]byte(cookie))] = begun
	return cookie, begun
}

// remove ends a session, if there is one. The lock is held.
func (s *sessions) remove(hash [sha256.Size]byte) {
	if x := s.byHash[hash]; x != nil {
		delete(s.byHash, hash)
		s.viewers.release(x.viewer)
	}
}

func (x *session) over(now time.Time) bool {
	return now.Sub(x.used) > sessionIdle || now.Sub(x.began) > sessionMost
}

// find returns the session of a cookie that is not over; nil: none. It counts as a use, or does
// not.
func (s *sessions) find(cookie string, use bool) *session {
	if cookie == "" {
		return nil
	}
	now, hash := s.now(), sha256.Sum256([]byte(cookie))
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.byHash[hash]
	switch {
	case x == nil:
	case x.over(now):
		s.remove(hash)
		return nil
	case use:
		x.used = now
	}
	return x
}

// end ends the session of a cookie.
func (s *sessions) end(cookie string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(sha256.Sum256([]byte(cookie)))
}

// expire ends sessions that are over, so that their clients make room for others.
func (s *sessions) expire() {
	now := s.now()
	s.endIf(func(x *session) bool { return x.over(now) })
}

func (s *sessions) endIf(which func(*session) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for hash, x := range s.byHash {
		if which(x) {
			s.remove(hash)
		}
	}
}

func (c *Console) cookieOf(r *http.Request) string {
	if k, err := r.Cookie(c.cfg.CookieName); err == nil {
		return k.Value
	}
	return ""
}

// sessionOf is the session of a request; nil: none. A request uses its session, but for that of a
// stream: an open tab keeps it, and makes it again, without anybody there.
func (c *Console) sessionOf(r *http.Request) *session {
	return c.sessions.find(c.cookieOf(r), !isStream(r))
}

func (c *Console) setCookie(w http.ResponseWriter, value string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: c.cfg.CookieName, Value: value, Path: "/", MaxAge: age,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: c.cfg.Secure,
	})
}

// letIn begins a session and leads to where the person wanted to go.
func (c *Console) letIn(w http.ResponseWriter, r *http.Request, v *viewer, to string) {
	cookie, begun := c.sessions.begin(v)
	if begun == nil {
		c.fail(w, r, nil, client.ErrClientClosed)
		return
	}
	c.sessions.end(c.cookieOf(r)) // behind the beginning: the end of its last session closes a client
	c.setCookie(w, cookie, int(sessionMost/time.Second))
	http.Redirect(w, r, localPath(to), http.StatusSeeOther)
}

// localPath is a path of this console to go to after a form; whatever else was asked for is the
// overview.
func localPath(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Host != "" || u.Scheme != "" || pages[u.Path] == nil || strings.HasPrefix(to, "//") {
		return "/"
	}
	return u.RequestURI()
}

// serveEnter exchanges the one-time secret for a session.
func (c *Console) serveEnter(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead { // a look at where the link leads does not use it up
		return
	}
	given := r.URL.Query().Get("secret")
	c.mu.Lock()
	right := c.cfg.Secret != "" && subtle.ConstantTimeCompare([]byte(given), []byte(c.cfg.Secret)) == 1 && !c.entered
	if right {
		c.entered = true
	}
	c.mu.Unlock()
	if !right {
		c.cfg.Log.Warn("console: a link with a wrong or used secret was refused", "remote", r.RemoteAddr)
		c.refuse(w, r, http.StatusForbidden, "Not allowed",
			"This link was used already, or is not this console's. Start `signalbox console` again for a new one.")
		return
	}
	v, err := c.viewers.anonymous(r.Context())
	if err != nil {
		c.mu.Lock()
		c.entered = false // nobody has entered with it
		c.mu.Unlock()
		c.fail(w, r, nil, err)
		return
	}
	c.letIn(w, r, v, "/")
}

// serveLogin shows the form for a token, or takes it.
func (c *Console) serveLogin(w http.ResponseWriter, r *http.Request) {
	if c.cfg.Secret != "" { // its certificates would count beside a stranger's token
		c.refuse(w, r, http.StatusForbidden, "Not allowed",
			"Nobody logs in here: this console is for the user who started it.")
		return
	}
	to := r.URL.Query().Get("to")
	if r.Method != http.MethodPost {
		c.render(w, r, nil, loginPage(to, ""))
		return
	}
	if err := r.ParseForm(); err != nil {
		c.refuseForm(w, r, err)
		return
	}
	to = r.PostForm.Get("to")
	token := strings.TrimSpace(r.PostForm.Get("token"))
	if token == "" || len(token) > maxTokenSize {
		p := loginPage(to, "That is not a token. Paste the whole of it.")
		p.Status = http.StatusBadRequest
		c.render(w, r, nil, p)
		return
	}
	ctx, done := c.logins.begin(r.Context(), clienthost.Of(r.RemoteAddr))
	defer done()
	c.sessions.expire()
	v, err := c.viewers.get(ctx, []byte(token))
	if errors.Is(context.Cause(ctx), errOvertaken) && err != nil {
		w.Header().Set("Retry-After", "2")
		c.refuse(w, r, http.StatusServiceUnavailable, "Busy", "Others log in right now. Try again in a moment.")
		return
	}
	if err != nil {
		status, _, text := explain(err)
		if status == http.StatusUnauthorized {
			text = "The cluster does not know this token."
			c.cfg.Log.Warn("console: a login was refused", "remote", r.RemoteAddr)
		}
		p := loginPage(to, sentence(visibleText(text)))
		p.Status = status
		c.render(w, r, nil, p)
		return
	}
	if who, err := v.identity(r.Context()); err == nil {
		c.cfg.Log.Info("console: login", "identity", who.Identity, "remote", r.RemoteAddr)
	}
	c.letIn(w, r, v, to)
}

func loginPage(to, problem string) *page {
	p := &page{
		Title: "Log in", Login: &loginForm{To: to},
		Lead: "This cluster wants to know who you are. The console asks it with your token, " +
			"and shows and does what your rights allow.",
	}
	if problem != "" {
		p.Notes = []note{{Tone: "bad", Text: problem}}
	}
	return p
}

// serveLogout ends the session. The cookie is SameSite and the origin was checked, so no other site
// can do it.
func (c *Console) serveLogout(w http.ResponseWriter, r *http.Request) {
	c.sessions.end(c.cookieOf(r))
	c.setCookie(w, "", -1)
	if c.cfg.Secret != "" {
		c.refuse(w, r, http.StatusOK, "Logged out",
			"You can close this tab. Start `signalbox console` again for a new link.")
		return
	}
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

func (c *Console) refuse(w http.ResponseWriter, r *http.Request, status int, title, text string) {
	c.render(w, r, nil, &page{Status: status, Title: title, Notes: []note{{Tone: "warn", Text: text}}})
}

// refuseForm says why a form cannot be read.
func (c *Console) refuseForm(w http.ResponseWriter, r *http.Request, err error) {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		c.refuse(w, r, http.StatusRequestEntityTooLarge, "Too long", "The form has more than 16 KiB.")
		return
	}
	c.refuse(w, r, http.StatusBadRequest, "Bad request", "The form cannot be read.")
}

// maxLogins is how many attempts to log in are under way at a time. Each opens a connection to the
// cluster.
const maxLogins = 16

// errOvertaken is the cause with which an attempt ends that had to make room.
var errOvertaken = errors.New("newer attempts to log in took the place of this one")

// attempts are the attempts to log in that are under way. A cluster answers a token that it knows
// at once, and one that it does not know late. So a new attempt takes the place of one that has
// been under way for long: strangers without a token cannot keep others out.
//
// The attempt that ends is the oldest of the host with the most of them. So strangers end their own
// attempts first, unless they come from as many hosts as there are places.
type attempts struct {
	mu      sync.Mutex
	running []*attempt // the oldest first
}

type attempt struct {
	host string
	end  context.CancelCauseFunc
}

// begin makes room for an attempt of a host. The context ends with errOvertaken if others take its
// place. done ends the attempt.
func (a *attempts) begin(ctx context.Context, host string) (_ context.Context, done func()) {
	ctx, end := context.WithCancelCause(ctx)
	x := &attempt{host, end}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.running) >= maxLogins {
		i := busiest(a.running)
		a.running[i].end(errOvertaken)
		a.running = slices.Delete(a.running, i, i+1)
	}
	a.running = append(a.running, x)
	return ctx, func() {
		end(nil)
		a.mu.Lock()
		defer a.mu.Unlock()
		if i := slices.Index(a.running, x); i >= 0 {
			a.running = slices.Delete(a.running, i, i+1)
		}
	}
}

// busiest is the index of the oldest attempt of the host with the most, of a list that is not empty
// and has the oldest first.
func busiest(list []*attempt) int {
	count := make(map[string]int)
	for _, x := range list {
		count[x.host]++
	}
	first := 0
	for i, x := range list {
		if count[x.host] > count[list[first].host] {
			first = i
		}
	}
	return first
}
