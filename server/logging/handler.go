package logging

import (
	"context"
	"log/slog"
	"sync/atomic"
)

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
