package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

// startup is what a server shows before it serves clients.
type startup struct {
	waitReason atomic.Pointer[func() string] // a sentence of what the present step waits for; nil: nothing
	pages      atomic.Pointer[http.Handler]  // what the operators' address serves
}

// ServeHTTP implements http.Handler.
func (s *startup) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*s.pages.Load()).ServeHTTP(w, r)
}

func (s *startup) waitFor(why func() string) { s.waitReason.Store(&why) }

func (s *startup) waitForText(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.waitFor(func() string { return text })
}

// reason is what the start waits for.
func (s *startup) reason() string {
	if f := s.waitReason.Load(); f != nil {
		return (*f)()
	}
	return ""
}

// The log says what a start waits for after progressFirst, and then after pauses that double up to
// progressMost.
const (
	progressFirst = 5 * time.Second
	progressMost  = time.Minute
)

// logProgress logs what the start waits for, until ctx ends.
func (s *startup) logProgress(ctx context.Context, log *slog.Logger) {
	for pause := progressFirst; beat.Sleep(ctx, pause); pause = min(2*pause, progressMost) {
		log.Warn("start goes on waiting", "why", s.reason())
	}
}
