package server

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/signalbox-dev/signalbox/server/admin"
)

// startup is what a server that does not serve clients yet shows of itself.
type startup struct {
	waitReason atomic.Pointer[func() string] // what the present step waits for, a sentence; nil: nothing to speak of
	pages      atomic.Pointer[http.Handler]  // what the operators' address serves
}

// ServeHTTP implements http.Handler.
func (u *startup) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*u.pages.Load()).ServeHTTP(w, r)
}

func (u *startup) waitFor(why func() string) { u.waitReason.Store(&why) }

func (u *startup) waitForText(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	u.waitFor(func() string { return text })
}

// reason is what the start waits for.
func (u *startup) reason() string {
	if f := u.waitReason.Load(); f != nil {
		return (*f)()
	}
	return ""
}

// The log says what a start waits for, the first time after progressFirst, then after pauses that double up to progressMost.
const (
	progressFirst = 5 * time.Second
	progressMost  = time.Minute
)

// logProgress runs until ctx ends.
func (s *Server) logProgress(ctx context.Context) {
	for pause := progressFirst; sleep(ctx, pause) == nil; pause = min(2*pause, progressMost) {
		s.log.Warn("start goes on waiting", "why", s.startup.reason())
	}
}

// openAdmin serves health and readiness at the operators' address while the server starts: a probe must not hang because peers are missing.
func (s *Server) openAdmin(context.Context) error {
	if s.adminListener == nil {
		return nil
	}
	s.showPages()
	s.adminServer = admin.Server(&s.startup, s.log)
	s.running.Go(func() { _ = s.adminServer.Serve(admin.LimitListener(s.adminListener, admin.MaxConnections)) })
	return nil
}

// openMetrics adds the server's own metrics, which count what is there once it has started.
func (s *Server) openMetrics(context.Context) error {
	s.showPages(s.metrics.set)
	return nil
}

func (s *Server) showPages(sets ...*metrics.Set) {
	h := admin.Handler(admin.Config{Metrics: sets, Live: s.Live, Ready: s.Ready})
	s.startup.pages.Store(&h)
}
