package logging

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
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

// CatchBrokenPipes makes a write to standard output or standard error whose reader has gone return
// an error. Otherwise the process ends by SIGPIPE. The signal is caught, not ignored: commands that
// the process runs would inherit that.
func CatchBrokenPipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// Bounds of a Limiter.
const (
	limiterPeriod = 10 * time.Second
	limiterLines  = 10 // of a period
)

// Limiter bounds the lines that strangers can cause: 10 in 10 seconds. The zero value is ready.
type Limiter struct {
	mu       sync.Mutex
	from     time.Time
	lines    int
	withheld int // since the last line
}

// Allow reports whether a line may be logged now. More is the attribute "withheld", for this line,
// with the number of lines that were not logged since the last one; nothing if all were.
func (l *Limiter) Allow(now time.Time) (more []any, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.from) > limiterPeriod {
		l.from, l.lines = now, 0
	}
	if l.lines >= limiterLines {
		l.withheld++
		return nil, false
	}
	l.lines++
	if l.withheld > 0 {
		more = []any{"withheld", l.withheld}
	}
	l.withheld = 0
	return more, true
}

// handler writes in the present format of its log. Loggers that were made with attributes before a
// change follow it: their handler is derived again.
type handler struct {
	of      *Log
	derive  func(slog.Handler) slog.Handler // nil: it is the format's own
	derived atomic.Pointer[derivedHandler]
}

// derivedHandler is what derive made of a format.
type derivedHandler struct {
	slog.Handler
	from *format
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.of.level.Level()
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	return h.present().Handle(ctx, r)
}

// present is the handler of the present format. Two goroutines may derive it at once, to the same
// effect.
func (h *handler) present() slog.Handler {
	f := h.of.format.Load()
	if h.derive == nil {
		return f
	}
	d := h.derived.Load()
	if d == nil || d.from != f {
		d = &derivedHandler{h.derive(f), f}
		h.derived.Store(d)
	}
	return d
}

func (h *handler) with(next func(slog.Handler) slog.Handler) slog.Handler {
	first := h.derive
	if first == nil {
		return &handler{of: h.of, derive: next}
	}
	return &handler{of: h.of, derive: func(f slog.Handler) slog.Handler { return next(first(f)) }}
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.with(func(f slog.Handler) slog.Handler { return f.WithAttrs(attrs) })
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return h.with(func(f slog.Handler) slog.Handler { return f.WithGroup(name) })
}
