package console

import (
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/signalbox-dev/signalbox/server/web"
)

// Bounds of what strangers may send.
const (
	maxURL    = 4 << 10 // bytes of a request's path and query; longer is 414
	maxHeader = 16 << 10
	maxForm   = 16 << 10 // bytes of a form; longer is 413
)

const (
	maxConnections = 128
	requestTimeout = 5 * time.Second  // for a request to arrive
	writeTimeout   = 30 * time.Second // for an answer to be taken; a stream's is for each update
)

// Server serves a console with limits that hold against slow and hostile clients. The caller
// listens, calls Serve with a LimitListener, and closes it.
func Server(h http.Handler, log *slog.Logger) *http.Server {
	return web.Server(h, web.Timeouts{Header: requestTimeout, Read: requestTimeout, Write: writeTimeout,
		Idle: time.Minute},
		maxHeader, log)
}

// LimitListener accepts at most 128 connections at a time. One on which nobody is shown a page
// makes room for another; see web.LimitListener.
func LimitListener(l net.Listener) net.Listener {
	return web.LimitListener(l, maxConnections, "the console has too many connections; close some tabs first")
}

// policy lets a page load from the console itself and from nowhere else. No text of a page can
// become script: browsers that know trusted types refuse it even from our own script.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// guard refuses what no page should see.
type guard struct {
	hosts []string // names under which people reach the console, beside loopback
	pages http.Handler
}

// ServeHTTP implements http.Handler.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	switch {
	case !web.KnownHost(r.Host, g.hosts):
		// The name of a site that points here must not make its scripts part of this one.
		http.Error(w, "this console is not reached under this name; use localhost, or start it with --console-host",
			http.StatusMisdirectedRequest)
	case len(r.RequestURI) > maxURL:
		http.Error(w, "the address is too long", http.StatusRequestURITooLong)
	case r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost:
		h.Set("Allow", "GET, HEAD, POST")
		http.Error(w, "use GET, HEAD or POST", http.StatusMethodNotAllowed)
	case r.Method == http.MethodPost && !sameOrigin(r):
		http.Error(w, "this form was not sent by a page of this console, or the browser does not say so: "+
			"reach the console over TLS or on loopback", http.StatusForbidden)
	default:
		if r.Method == http.MethodPost {
			r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		}
		g.pages.ServeHTTP(w, r)
	}
}

// sameOrigin reports whether a form was sent by a page of this console. Its pages send no referrer,
// so browsers send "null" for their origin, and say in Sec-Fetch-Site where it comes from. They do
// so over TLS and on loopback.
func sameOrigin(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	switch origin := r.Header.Get("Origin"); origin {
	case "", "null":
		return site == "same-origin"
	default:
		scheme := "http://"
		if r.TLS != nil {
			scheme = "https://"
		}
		known := origin == scheme+r.Host || origin == "https://"+r.Host // TLS may end before the console
		return known && (site == "" || site == "same-origin")
	}
}
