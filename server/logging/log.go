package logging

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"
)

// Log is the log of a program. Its level and format may change while it is used.
type Log struct {
	out    *Queue
	level  slog.LevelVar
	format atomic.Pointer[format]
}

// format is one format: the handler that all others are derived from.
type format struct {
	slog.Handler
	make func(io.Writer, *slog.HandlerOptions) slog.Handler
}

// New returns a log that is written to a file: see [Log.Set].
func New(to io.Writer, level, format string) (*Log, error) {
	l := &Log{out: NewQueue(to)}
	l.out.resume = l.gapLine
	return l, l.Set(level, format)
}

// Set changes the level (debug, info, warn, error) and the format (text, json). With an error
// neither changes.
func (l *Log) Set(level, form string) error {
	var lv slog.Level
	switch strings.ToLower(level) {
	case "debug":
		lv = slog.LevelDebug
	case "info":
		lv = slog.LevelInfo
	case "warn":
		lv = slog.LevelWarn
	case "error":
		lv = slog.LevelError
	default:
		return fmt.Errorf("--log-level %q is unknown; choose debug, info, warn or error", level)
	}
	f := new(format)
	switch form {
	case "text":
		f.make = func(w io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewTextHandler(w, o) }
	case "json":
		f.make = func(w io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewJSONHandler(w, o) }
	default:
		return fmt.Errorf("--log-format %q is unknown; choose text or json", form)
	}
	f.Handler = f.make(l.out, &slog.HandlerOptions{Level: &l.level})
	l.level.Set(lv)
	l.format.Store(f)
	return nil
}

// Logger writes to the log.
func (l *Log) Logger() *slog.Logger { return slog.New(&handler{of: l}) }

// Dropped is how many lines were dropped since the start, because nobody read the earlier ones.
func (l *Log) Dropped() uint64 { return l.out.Dropped() }

// Flush waits until all lines are written or dropped, for a limited time.
func (l *Log) Flush(limit time.Duration) { l.out.Flush(limit) }

// gapLine is the line behind which the log goes on.
func (l *Log) gapLine(dropped uint64) []byte {
	var b bytes.Buffer
	r := slog.NewRecord(time.Now(), slog.LevelWarn, "log lines were dropped, nobody read the earlier ones", 0)
	r.Add("lines", dropped)
	_ = l.format.Load().make(&b, nil).Handle(context.Background(), r)
	return b.Bytes()
}
