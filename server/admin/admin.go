// Package admin serves metrics, health and profiles over HTTP, for operators and their tools. It
// shows no secrets and changes nothing. It has no access control of its own: bind it to loopback,
// or to a network that only operators reach.
//
// /healthz asks whether the process is to be started again, /readyz whether clients are to be sent
// here: a shard without a leader makes an instance not ready. An event loop or a failure detector
// that does nothing for 5 s makes it unhealthy.
//
// A site can point its own name at this address (DNS rebinding), and its scripts would then read
// the pages. So the Host of a request is an IP address, loopback, the machine's name or one of
// Config.Hosts. The kubelet and Prometheus send the pod's IP address, kubectl port-forward
// localhost, HAProxy's probes none.
//
// The default mux, in which net/http/pprof registers itself, and the default set of the metrics
// library are served by nothing.
package admin

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"os"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/server/web"
)

const (
	maxURL       = 4 << 10         // bytes of a request's path and query; longer is 414
	maxHeader    = 16 << 10        // bytes of a request's header; longer is 431
	readTimeout  = 5 * time.Second // for the header, and for the whole request
	idleTimeout  = time.Minute     // between requests of a connection
	writeTimeout = 2 * time.Minute // for an answer; a profile or trace adds the seconds it was asked for
)

// ownSite are the values of Sec-Fetch-Site of programs, of people and of the pages here.
var ownSite = []string{"", "none", "same-origin"}

// Config of the handler. The zero value is healthy and ready, and has no metrics.
type Config struct {
	// Hosts are the names, without ports, under which operators and their tools come here, beside
	// loopback, IP addresses and the machine's name. A request for another name is 421, so that a
	// site which points its name here cannot read the pages.
	Hosts []string

	// Metrics writes the page at /metrics, in the Prometheus text format. A nil func writes none.
	Metrics func(io.Writer)

	// Live says in a sentence why the process should be restarted; nil when it is fine. A nil func
	// means always fine.
	Live func() error

	// Ready says in a sentence why clients should not be sent here now; nil when they may be. A nil
	// func means always ready.
	Ready func() error
}

// Handler serves /, /metrics, /healthz, /readyz and /debug/pprof/. Anything but GET and HEAD is
// 405, a request of another site's page 403, and one for an unknown name 421. At most 128 requests
// are served at a time, and 96 of one client host: others are 503, but for health and readiness.
func Handler(c Config) http.Handler { return handler(c, maxRequests) }

func handler(c Config, most int) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", indexPage)
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		if c.Metrics != nil {
			c.Metrics(w)
		}
	})
	mux.Handle("/healthz", healthHandler(c.Live))
	mux.Handle("/readyz", healthHandler(c.Ready))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	hosts := c.Hosts
	if own, err := os.Hostname(); err == nil {
		hosts = append(slices.Clone(hosts), own)
	}
	return checkRequest(hosts, &places{most: most, host: make(map[string]int)}, mux)
}

// Server serves a handler with limits that hold against slow and hostile clients. The caller
// listens, calls Serve with a LimitListener, and closes it.
func Server(h http.Handler, log *slog.Logger) *http.Server {
	return web.Server(h, web.Timeouts{Header: readTimeout, Read: readTimeout, Write: writeTimeout, Idle: idleTimeout},
		maxHeader, log)
}

// checkRequest refuses bad requests before any page sees them. Probes of HTTP/1.0 have no Host, and
// no browser sends them.
func checkRequest(hosts []string, places *places, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer web.KeepConnection(r.Context())()
		switch {
		case r.Host != "" && !web.IsAddress(r.Host) && !web.KnownHost(r.Host, hosts):
			http.Error(w, fmt.Sprintf("this is not reached under the name %q; use its IP address, or start it with --admin-host",
				web.HostName(r.Host)), http.StatusMisdirectedRequest)
		case r.Header.Get("Origin") != "", !slices.Contains(ownSite, r.Header.Get("Sec-Fetch-Site")):
			http.Error(w, "requests of other sites' pages are refused; enter the address by hand", http.StatusForbidden)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "use GET or HEAD; nothing can be changed here", http.StatusMethodNotAllowed)
		case len(r.RequestURI) > maxURL:
			http.Error(w, "the URL is too long; see / for what there is", http.StatusRequestURITooLong)
		default:
			if r.URL.Path != "/healthz" && r.URL.Path != "/readyz" {
				leave := places.take(r)
				if leave == nil {
					w.Header().Set("Connection", "close")
					http.Error(w, "too many requests; end some first. Only /healthz and /readyz are answered meanwhile",
						http.StatusServiceUnavailable)
					return
				}
				defer leave()
			}
			w.Header().Set("X-Content-Type-Options", "nosniff")
			w.Header().Set("Cache-Control", "no-store")
			next.ServeHTTP(w, r)
		}
	})
}

// healthHandler answers 200 "ok", or 503 and the reason.
func healthHandler(check func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if check != nil {
			if err := check(); err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = io.WriteString(w, err.Error()+"\n")
				return
			}
		}
		_, _ = io.WriteString(w, "ok\n")
	})
}

func indexPage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, `signalbox

/metrics       counters, gauges and histograms in the Prometheus text format
/healthz       200 while the process is fit to run; else 503 and why it should be restarted
/readyz        200 while clients are served; else 503 and what is missing
/debug/pprof/  profiles of the running process
`)
}
