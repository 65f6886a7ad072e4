package integration

import (
	"bytes"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// logLines is a log that can be read while it is written.
type logLines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// has reports whether one line contains all parts.
func (l *logLines) has(parts ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		all := true
		for _, p := range parts {
			all = all && strings.Contains(line, p)
		}
		if all {
			return true
		}
	}
	return false
}

// takeWarnings forgets all lines, and returns those above level INFO.
func (l *logLines) takeWarnings() (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		// That a start takes more than 5 s says only that the machine is slow.
		if !strings.Contains(line, "level=INFO") && !strings.Contains(line, `msg="start goes on waiting"`) {
			list = append(list, line)
		}
	}
	l.b.Reset()
	return list
}

// TestSessionsAreLogged: at debug the log names each start and end of a session, and at info it
// counts those that expire.
func TestSessionsAreLogged(t *testing.T) {
	t.Parallel()
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo} {
		t.Run(level.String(), func(t *testing.T) {
			var lines logLines
			var clock interface{ Advance(time.Duration) }
			s := start(t, func(c *server.Config) {
				clock = manual(c)
				c.Logger = slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: level}))
			})
			c := connect(t, s)
			node := c.node()
			stopped, left := c.session(node, 1), c.session(node, 2)
			c.must(protocol.KindSessionStop, uint64(protocol.SessionBucket(stopped.Session)),
				&protocol.SessionStop{Session: stopped.Session, Epoch: 1}, nil)
			_ = c.nc.Close()
			await.True(t, "the expiry", func() bool {
				clock.Advance(time.Second)
				return s.Metrics.EndedSessions(protocol.EndExpired) > 0
			})
			await.True(t, "the line of the expiry", func() bool {
				return lines.has(`level=INFO msg="sessions expired"`, "node=/default", "count=1", "first="+strconv.FormatUint(left.Session, 10), "connection=closed", "same_leader=true")
			})
			debug := level == slog.LevelDebug
			id := func(r protocol.SessionReply) string { return "session=" + strconv.FormatUint(r.Session, 10) + " " }
			for _, parts := range [][]string{
				{`level=DEBUG msg="session started"`, id(stopped), "node=/default", "client=127.0.0.1"},
				{`level=DEBUG msg="session ended"`, id(stopped), "node=/default", "reason=stopped", "client=127.0.0.1"},
				{`level=DEBUG msg="session started"`, id(left)},
				{`level=DEBUG msg="session ended"`, id(left), "reason=expired"},
			} {
				if debug {
					await.True(t, "the line "+strings.Join(parts, " "), func() bool { return lines.has(parts...) })
					continue
				}
				if lines.has(parts[1]) {
					t.Errorf("a line about session %s at level %s", parts[1], level)
				}
			}
		})
	}
}
