package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/web"
)

// Config of a console. Client.Endpoints is required.
type Config struct {
	// Client says how to reach the cluster. Its token and its certificates are the credentials of
	// every viewer if Secret is set. Otherwise they must be empty: viewers log in with tokens of
	// their own, once the cluster requires credentials.
	Client client.Config

	// Secret, if not empty, is exchanged once at /enter?secret= for a session. Without a session
	// every page is 403.
	Secret string

	// Hosts are the names, without ports, under which people reach this console besides loopback.
	// A request for another name is 421.
	Hosts []string

	// CookieName tells the cookies of several consoles on one host apart. Default: signalbox.
	CookieName string

	// Secure says that people reach the console over TLS: cookies are Secure then, and their names
	// begin with __Host-.
	Secure bool

	// Refresh is the time between two reads of a page that is looked at and changes, at least 250
	// ms. Default: 500 ms. A page that does not change is read again after 1.6 times that. All
	// viewers of one page with the same credentials share its reads.
	Refresh time.Duration

	// Now is the clock of sessions. Default: time.Now.
	Now func() time.Time

	// Log gets logins, refused ones too, and actions. Default: nothing is logged.
	Log *slog.Logger
}

const (
	defaultRefresh = 500 * time.Millisecond
	minRefresh     = 250 * time.Millisecond // at most four updates a second
	readTimeout    = 8 * time.Second        // for all that one page reads
)

// Console serves the pages. Its methods may be called from any goroutine.
type Console struct {
	cfg      Config
	guard    guard
	viewers  *viewers
	sessions *sessions
	views    views
	logins   attempts
	formKey  [32]byte // of the tokens of forms without a session
	began    time.Time

	mu      sync.Mutex
	entered bool // the secret was used

	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	running sync.WaitGroup
}

// New makes a console. It connects when the first page is asked for. The caller closes it.
func New(cfg Config) (*Console, error) {
	if len(cfg.Client.Endpoints) == 0 {
		return nil, errors.New("the console has no endpoint; name at least one instance as host:port")
	}
	if cfg.Secret == "" && hasToken(cfg.Client) {
		return nil, errors.New("the console has credentials of its own and no secret; everybody would have them")
	}
	cfg.Refresh = cmp.Or(cfg.Refresh, defaultRefresh)
	if cfg.Refresh < minRefresh {
		return nil, fmt.Errorf("the console's refresh of %s is below %s; choose a longer one", cfg.Refresh, minRefresh)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.CookieName = cmp.Or(cfg.CookieName, "signalbox")
	if cfg.Secure {
		cfg.CookieName = "__Host-" + cfg.CookieName // no other host of the domain can set it
	}
	cfg.Client.Name = protocol.ConsoleClient // audit lines have via=console by it
	c := &Console{cfg: cfg, began: time.Now()}
	_, _ = rand.Read(c.formKey[:]) // it never fails
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.viewers = newViewers(cfg.Client)
	c.sessions = newSessions(cfg.Now, c.viewers)
	c.views.open = make(map[viewKey]*view)
	c.guard = guard{hosts: cfg.Hosts, pages: c.routes()}
	return c, nil
}

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.guard.ServeHTTP(w, r) }

// Close ends all streams and connections. Requests under way fail.
func (c *Console) Close() {
	c.views.mu.Lock()
	c.stop() // no view is opened after it
	c.views.mu.Unlock()
	c.running.Wait()
	c.sessions.endIf(func(*session) bool { return true })
	c.viewers.close()
}

// pageFunc reads a page. Its errors are those of the SDK, or a *notFoundError.
type pageFunc func(ctx context.Context, v *viewer, q url.Values) (*page, error)

// pages are the pages by path. Each has a stream of its changes below /live.
var pages = map[string]pageFunc{
	"/":               overviewPage,
	"/nodes":          nodesPage,
	"/node":           nodePage,
	"/services":       servicesPage,
	"/elections":      electionsPage,
	"/configurations": configurationsPage,
	"/semaphores":     semaphoresPage,
	"/semaphore":      semaphorePage,
	"/limits":         limitsPage,
	"/limit":          limitPage,
	"/sessions":       sessionsPage,
	"/session":        sessionPage,
	"/rollouts":       rolloutsPage,
	"/rollout":        rolloutPage,
	"/processes":      processesPage,
	"/process":        processPage,
	"/audit":          auditPage,
}

func (c *Console) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for path, read := range pages {
		pattern := path
		if path == "/" {
			pattern = "/{$}"
		}
		mux.Handle("GET "+pattern, c.viewing(func(w http.ResponseWriter, r *http.Request, v *viewer) {
			c.servePage(w, r, v, read)
		}))
	}
	mux.Handle("GET /live/", c.viewing(c.serveLive))
	mux.Handle("GET /data", c.viewing(c.serveData))
	mux.Handle("GET /action/{verb}", c.viewing(c.serveAction))
	mux.Handle("POST /action/{verb}", c.viewing(c.serveAction))
	mux.HandleFunc("GET /enter", c.serveEnter)
	mux.HandleFunc("GET /login", c.serveLogin)
	mux.HandleFunc("POST /login", c.serveLogin)
	mux.HandleFunc("POST /logout", c.serveLogout)
	mux.HandleFunc("GET /assets/style.css", serveAsset("text/css; charset=utf-8", styleSheet))
	mux.HandleFunc("GET /assets/console.js", serveAsset("text/javascript; charset=utf-8", script))
	mux.HandleFunc("GET /assets/icon.svg", serveAsset("image/svg+xml", icon))
	mux.HandleFunc("GET /favicon.ico", serveAsset("image/svg+xml", icon)) // of refusals, which are plain text
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		c.fail(w, r, nil, &notFoundError{"There is no such page. The links above lead to all there are."})
	})
	return mux
}

// viewing serves a page to somebody who may see pages: it finds whose credentials count.
func (c *Console) viewing(page func(w http.ResponseWriter, r *http.Request, v *viewer)) http.Handler {
	serve := func(w http.ResponseWriter, r *http.Request, v *viewer) {
		defer web.KeepConnection(r.Context())()
		page(w, r, v)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s := c.sessionOf(r); s != nil {
			serve(w, r, s.viewer)
			return
		}
		if c.cfg.Secret != "" {
			if isStream(r) {
				c.denyStream(w)
				return
			}
			c.refuse(w, r, http.StatusForbidden, "Not allowed",
				"This console is for the user who started it. Open the link that `signalbox console` has printed.")
			return
		}
		v, err := c.viewers.anonymous(r.Context())
		if err == nil {
			var who *admin.Identity
			if who, err = v.identity(r.Context()); err == nil && !who.Enabled {
				serve(w, r, v)
				return
			}
			if errors.Is(err, client.ErrUnauthenticated) {
				c.viewers.refuse(v)
			}
		}
		switch {
		case err != nil && !errors.Is(err, client.ErrUnauthenticated):
			c.fail(w, r, nil, err)
		case isStream(r):
			c.denyStream(w)
		default:
			http.Redirect(w, r, address("/login", "to", r.URL.RequestURI()), http.StatusSeeOther)
		}
	})
}

func (c *Console) servePage(w http.ResponseWriter, r *http.Request, v *viewer, read pageFunc) {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	p, err := read(ctx, v, r.URL.Query())
	if errors.Is(err, client.ErrUnauthenticated) && c.cfg.Secret == "" { // the token was revoked, or is required now
		c.sessions.end(c.cookieOf(r))
		http.Redirect(w, r, address("/login", "to", r.URL.RequestURI()), http.StatusSeeOther)
		return
	}
	if err != nil {
		c.fail(w, r, v, err)
		return
	}
	c.render(w, r, v, p)
}

// notFoundError says in a sentence that a page, or what it is about, does not exist.
type notFoundError struct{ text string }

func (e *notFoundError) Error() string { return e.text }

// badRequestError says in a sentence what is wrong with an address or a form.
type badRequestError struct{ text string }

func (e *badRequestError) Error() string { return e.text }

// explain gives the HTTP status of an error, its title, and a sentence for people.
func explain(err error) (status int, title, text string) {
	var missing *notFoundError
	var bad *badRequestError
	switch {
	case errors.As(err, &missing):
		return http.StatusNotFound, "Not found", missing.text
	case errors.As(err, &bad):
		return http.StatusBadRequest, "Bad request", bad.text
	case errors.Is(err, client.ErrNotFound):
		return http.StatusNotFound, "Not found", err.Error()
	case errors.Is(err, client.ErrSessionExpired):
		return http.StatusNotFound, "Not found", "This session has ended, or never was."
	case errors.Is(err, client.ErrBadRequest):
		return http.StatusBadRequest, "Bad request", err.Error()
	case errors.Is(err, client.ErrPreconditionFailed), errors.Is(err, client.ErrAlreadyExists),
		errors.Is(err, client.ErrAborted):
		return http.StatusConflict, "Not possible now", err.Error()
	case errors.Is(err, client.ErrUnauthenticated):
		return http.StatusUnauthorized, "Not logged in", "The cluster does not accept these credentials any more."
	case errors.Is(err, client.ErrForbidden):
		return http.StatusForbidden, "Not allowed", err.Error()
	case errors.Is(err, errTooManyViewers):
		return http.StatusServiceUnavailable, "Busy", err.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, client.ErrUnreachable),
		errors.Is(err, client.ErrUnavailable), errors.Is(err, client.ErrClientClosed):
		return http.StatusServiceUnavailable, "Cluster not reached",
			"No instance answered in time. The page comes back when the cluster does."
	case errors.Is(err, client.ErrOverloaded):
		return http.StatusServiceUnavailable, "Busy", err.Error()
	}
	return http.StatusBadGateway, "The cluster could not answer", err.Error()
}
