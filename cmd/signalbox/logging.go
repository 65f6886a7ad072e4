package main

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
)

// logging is the log of an instance. Its level and format may change while it is used.
type logging struct {
	out    io.Writer
	level  slog.LevelVar
	format atomic.Pointer[logFormat]
}

// logFormat is one format: the handler that all others are derived from.
type logFormat struct{ slog.Handler }

var logLevels = choices[slog.Level]{{"debug", slog.LevelDebug}, {"info", slog.LevelInfo},
	{"warn", slog.LevelWarn}, {"error", slog.LevelError}}

func newLogging(out io.Writer, level, format string) (*logging, error) {
	l := &logging{out: out}
	return l, l.set(level, format)
}

// set changes level and format; with an error neither changes.
func (l *logging) set(level, format string) error {
	lv, err := logLevels.parse(strings.ToLower(level))
	if err != nil {
		return usagef("--log-level %q is unknown; choose debug, info, warn or error", level)
	}
	var h slog.Handler
	switch format {
	case "text":
		h = slog.NewTextHandler(l.out, &slog.HandlerOptions{Level: &l.level})
	case "json":
		h = slog.NewJSONHandler(l.out, &slog.HandlerOptions{Level: &l.level})
	default:
		return usagef("--log-format %q is unknown; choose text or json", format)
	}
	l.level.Set(lv)
	l.format.Store(&logFormat{h})
	return nil
}

func (l *logging) logger() *slog.Logger { return slog.New(&logHandler{of: l}) }

// logHandler writes in the present format of its log. Loggers that were made with attributes before
// a change follow it: their handler is derived again.
type logHandler struct {
	of      *logging
	derive  func(slog.Handler) slog.Handler // nil: it is the format's own
	derived atomic.Pointer[derivedHandler]
}

// derivedHandler is what derive made of a format.
type derivedHandler struct {
	slog.Handler
	from *logFormat
}

func (h *logHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.of.level.Level()
}

func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.present().Handle(ctx, r)
}

// present is the handler of the present format. Two goroutines may derive it at once, to the same
// effect.
func (h *logHandler) present() slog.Handler {
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

func (h *logHandler) with(next func(slog.Handler) slog.Handler) slog.Handler {
	first := h.derive
	if first == nil {
		return &logHandler{of: h.of, derive: next}
	}
	return &logHandler{of: h.of, derive: func(f slog.Handler) slog.Handler { return next(first(f)) }}
}

// WithAttrs implements slog.Handler.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.with(func(f slog.Handler) slog.Handler { return f.WithAttrs(attrs) })
}

// WithGroup implements slog.Handler.
func (h *logHandler) WithGroup(name string) slog.Handler {
	return h.with(func(f slog.Handler) slog.Handler { return f.WithGroup(name) })
}
