package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/server/certs"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

// startup is the state that a server shows before it serves clients.
type startup struct {
	waitReason atomic.Pointer[func() string] // why the present step waits, as a sentence; nil: it does not
	pages      atomic.Pointer[http.Handler]  // of the operators' address
	instances  atomic.Pointer[certs.Certs]   // that keep it apart from the others while they are not valid; nil: none
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

// reason returns why the start waits.
func (s *startup) reason() string {
	if c := s.instances.Load(); c != nil {
		if list := refusalsOf("instances", c); list != nil {
			return strings.Join(list, "; ")
		}
	}
	if f := s.waitReason.Load(); f != nil {
		return (*f)()
	}
	return ""
}

// The log names the cause of a start's wait after progressFirst, and then after pauses that double
// up to progressMost.
const (
	progressFirst = 5 * time.Second
	progressMost  = time.Minute
)

// logProgress logs why the start waits, until ctx ends.
func (s *startup) logProgress(ctx context.Context, log *slog.Logger) {
	for pause := progressFirst; beat.Sleep(ctx, pause); pause = min(2*pause, progressMost) {
		log.Warn("start goes on waiting", "why", s.reason())
	}
}
